//! Attention of one query in plain words.

use super::{Arguments, BLOCK, CHUNK, Cache, CacheType, PANEL, Query, chunk_of, padded};
use crate::float;
use crate::math;
use crate::simd::{Scalar, tree};

fn exp(x: f32) -> f32 {
    math::exp(Scalar, [x; 16])[0]
}

/// Number `index` of a run of cached numbers.
fn number(cache: CacheType, words: &[u32], index: usize) -> f32 {
    match cache {
        CacheType::F32 => f32::from_bits(words[index]),
        CacheType::F16 => half::f16::from_bits((words[index / 2] >> (index % 2 * 16)) as u16).to_f32(),
    }
}

fn key(arguments: &Arguments, keys: &[u32], slot: usize, column: usize) -> f32 {
    let columns = padded(arguments.head_size);
    let panel = slot / PANEL * PANEL * columns;
    let index = panel + column * PANEL + slot % PANEL;
    number(arguments.cache, keys, index)
}

fn score(arguments: &Arguments, query: &Query<'_>, cache: &dyn Cache, position: usize) -> f32 {
    let (keys, _) = cache.block(position / BLOCK);
    let slot = position % BLOCK;
    let dot = (0..arguments.head_size)
        .fold(0.0, |sum, e| float::fma(query.values[e], key(arguments, keys, slot, e), sum));
    let mut score = dot * arguments.scale;
    if arguments.softcap != 0.0 {
        score = crate::ops::elementwise::soft_cap(Scalar, [score; 16], arguments.softcap)[0];
    }
    if query.slope != 0.0 {
        score = float::fma(query.slope, position as f32 - query.position as f32, score);
    }
    score
}

/// Attends with one query, straight from the contract. `scores` has [`CHUNK`] numbers, `columns` twice the
/// head size.
pub fn reference(
    arguments: &Arguments,
    query: &Query<'_>,
    cache: &dyn Cache,
    scores: &mut [f32],
    columns: &mut [f32],
    out: &mut [f32],
) {
    let (state, chunk_columns) = columns.split_at_mut(arguments.head_size);
    let mut maximum = f32::NEG_INFINITY;
    let mut sum = 0.0;
    let mut begun = false;
    for chunk in chunk_of(query.first)..=chunk_of(query.position) {
        let range = query.first.max(chunk * CHUNK)..(query.position + 1).min((chunk + 1) * CHUNK);
        let mut chunk_maximum = f32::NEG_INFINITY;
        for position in range.clone() {
            let score = score(arguments, query, cache, position);
            scores[position % CHUNK] = score;
            chunk_maximum = if score > chunk_maximum { score } else { chunk_maximum };
        }
        let mut lanes = [0.0; 16];
        chunk_columns.fill(0.0);
        for position in range {
            let weight = exp(scores[position % CHUNK] - chunk_maximum);
            lanes[position % 16] += weight;
            let (_, values) = cache.block(position / BLOCK);
            let start = position % BLOCK * padded(arguments.head_size);
            for (e, column) in chunk_columns.iter_mut().enumerate() {
                *column = float::fma(weight, number(arguments.cache, values, start + e), *column);
            }
        }
        let chunk_sum = tree(lanes, |a, b| a + b);
        if begun {
            let larger = if chunk_maximum > maximum { chunk_maximum } else { maximum };
            let (a, b) = (exp(maximum - larger), exp(chunk_maximum - larger));
            sum = float::fma(sum, a, chunk_sum * b);
            for (column, chunk_column) in state.iter_mut().zip(&*chunk_columns) {
                *column = float::fma(*column, a, chunk_column * b);
            }
            maximum = larger;
        } else {
            begun = true;
            maximum = chunk_maximum;
            sum = chunk_sum;
            state.copy_from_slice(chunk_columns);
        }
    }
    for (out, column) in out.iter_mut().zip(state) {
        *out = *column / sum;
    }
}
