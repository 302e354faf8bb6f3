//! Scalar reference of attention for one query.

mod int14;

use super::{
    AttentionArguments, BLOCK, CHUNK, CacheType, HeadCache, PANEL, Query, RUNS, chunk_of, digits, padded,
};
use core::ops::Range;

use super::int14::weight_scales;

use crate::float;
use crate::math;
use crate::simd::{Scalar, tree};

fn exp(x: f32) -> f32 {
    math::exp(Scalar, [x; 16])[0]
}

/// Returns byte `index` of some words.
fn byte(words: &[u32], index: usize) -> i8 {
    words[index / 4].to_le_bytes()[index % 4] as i8
}

/// Returns element `index` of some cached elements.
fn number(cache: CacheType, words: &[u32], index: usize) -> f32 {
    match cache {
        CacheType::F32 => f32::from_bits(words[index]),
        CacheType::Int8 | CacheType::Int14 => f32::from(byte(words, index)),
        CacheType::F16 => half::f16::from_bits((words[index / 2] >> (index % 2 * 16)) as u16).to_f32(),
    }
}

/// Returns the index of an element of a key; with int14, that of its high digit.
fn key_index(arguments: &AttentionArguments, slot: usize, column: usize) -> usize {
    let columns = padded(arguments.head_size);
    let panel = slot / PANEL * PANEL * columns;
    match arguments.cache {
        CacheType::Int8 | CacheType::Int14 => panel + (column / 4 * PANEL + slot % PANEL) * 4 + column % 4,
        CacheType::F16 | CacheType::F32 => panel + column * PANEL + slot % PANEL,
    }
}

fn key(arguments: &AttentionArguments, keys: &[u32], slot: usize, column: usize) -> f32 {
    number(arguments.cache, keys, key_index(arguments, slot, column))
}

/// Returns the index of an element of a value; with int14, that of its high digit.
fn value_index(arguments: &AttentionArguments, slot: usize, column: usize) -> usize {
    match arguments.cache {
        CacheType::Int8 | CacheType::Int14 => {
            column / 16 * 16 * BLOCK + (slot / 4 * 16 + column % 16) * 4 + slot % 4
        }
        CacheType::F16 | CacheType::F32 => slot * padded(arguments.head_size) + column,
    }
}

fn value(arguments: &AttentionArguments, values: &[u32], slot: usize, column: usize) -> f32 {
    number(arguments.cache, values, value_index(arguments, slot, column))
}

/// Returns the scale of a position in the quantized keys or values of a block.
fn scale(words: &[u32], slot: usize) -> f32 {
    f32::from_bits(words[words.len() - BLOCK + slot])
}

/// Returns the dot product of a query with a key.
fn dot(arguments: &AttentionArguments, query: &Query<'_>, keys: &[u32], slot: usize) -> f32 {
    let columns = 0..arguments.head_size;
    if arguments.cache == CacheType::Int14 {
        return int14::dot(arguments, query, keys, slot);
    }
    if arguments.cache != CacheType::Int8 {
        return columns.fold(0.0, |sum, e| float::fma(query.values[e], key(arguments, keys, slot, e), sum));
    }
    if query.values.iter().any(|x| !x.is_finite()) {
        return f32::NAN;
    }
    let largest = query.values.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let (query_scale, inverse) = digits::scales(largest, 127.0);
    let whole = |x: f32| float::round((x * inverse).clamp(-127.0, 127.0));
    // Exact in any order: integer sums below 2^24.
    let sum: f32 = columns.map(|e| whole(query.values[e]) * key(arguments, keys, slot, e)).sum();
    sum * (scale(keys, slot) * query_scale)
}

/// Returns a chunk's weighted sum of a column of the values. `weights` are those of the positions in `range`.
fn column(
    arguments: &AttentionArguments,
    cache: &dyn HeadCache,
    range: &Range<usize>,
    weights: &[f32],
    column: usize,
) -> f32 {
    let values = |position: usize| (cache.block(position / BLOCK).1, position % BLOCK);
    if matches!(arguments.cache, CacheType::F16 | CacheType::F32) {
        return range.clone().fold(0.0, |sum, position| {
            let (values, slot) = values(position);
            float::fma(weights[position % CHUNK], value(arguments, values, slot, column), sum)
        });
    }
    let weight = |position: usize| {
        let (values, slot) = values(position);
        weights[position % CHUNK] * scale(values, slot)
    };
    let poison: f32 = range.clone().map(|position| weight(position) * 0.0).sum();
    let largest = range.clone().map(weight).fold(0.0, |a: f32, b| if b > a { b } else { a });
    if arguments.cache == CacheType::Int14 {
        let mut lanes = [0.0; 16];
        range.clone().for_each(|position| lanes[position % 16] += weight(position));
        let (scale, inverse) = weight_scales(largest, tree(lanes, |a, b| a + b));
        let sum = range.clone().fold(0_i32, |sum, position| {
            let (values, slot) = values(position);
            let value = int14::number(values, value_index(arguments, slot, column));
            sum.wrapping_add(float::round(weight(position) * inverse) as i32 * value)
        });
        return sum as f32 * (scale + poison);
    }
    let (weight_scale, inverse) = digits::scales(largest, 16383.0);
    let (mut high, mut low) = (0, 0);
    for position in range.clone() {
        let whole = float::round(weight(position) * inverse) as i32;
        let (values, slot) = values(position);
        let value = value(arguments, values, slot, column) as i32;
        high += whole / 128 * value;
        low += whole % 128 * value;
    }
    float::fma(high as f32, 128.0, low as f32) * (weight_scale + poison)
}

fn score(arguments: &AttentionArguments, query: &Query<'_>, cache: &dyn HeadCache, position: usize) -> f32 {
    let (keys, _) = cache.block(position / BLOCK);
    let slot = position % BLOCK;
    let mut score = dot(arguments, query, keys, slot) * arguments.scale;
    if arguments.softcap != 0.0 {
        score = crate::ops::elementwise::soft_cap(Scalar, [score; 16], arguments.softcap)[0];
    }
    if query.slope != 0.0 {
        score = float::fma(query.slope, position as f32 - query.position as f32, score);
    }
    if !query.bias.is_empty() {
        score += query.bias[position];
    }
    score
}

/// Computes attention for one query, directly from the contract. `scores` has [`CHUNK`] floats, `columns`
/// twice the head size.
pub fn reference(
    arguments: &AttentionArguments,
    query: &Query<'_>,
    cache: &dyn HeadCache,
    scores: &mut [f32],
    columns: &mut [f32],
    out: &mut [f32],
) {
    let (state, chunk_columns) = columns.split_at_mut(arguments.head_size);
    let mut maximum = f32::NEG_INFINITY;
    let mut sum = 0.0;
    let mut begun = false;
    let runs = (0..RUNS).filter_map(|run| query.sees(run)).map(|(first, last)| {
        let bias = if query.is_biased(last) { query.bias } else { &[] };
        Query { first, last, bias, ..*query }
    });
    let chunks =
        runs.flat_map(|run| (chunk_of(run.first)..=chunk_of(run.last)).map(move |chunk| (run, chunk)));
    for (query, chunk) in chunks {
        let range = query.first.max(chunk * CHUNK)..(query.last + 1).min((chunk + 1) * CHUNK);
        let mut chunk_maximum = f32::NEG_INFINITY;
        for position in range.clone() {
            let score = score(arguments, &query, cache, position);
            scores[position % CHUNK] = score;
            chunk_maximum = if score > chunk_maximum { score } else { chunk_maximum };
        }
        let mut lanes = [0.0; 16];
        for position in range.clone() {
            let weight = exp(scores[position % CHUNK] - chunk_maximum);
            lanes[position % 16] += weight;
            scores[position % CHUNK] = weight;
        }
        let chunk_sum = tree(lanes, |a, b| a + b);
        for (e, out) in chunk_columns.iter_mut().enumerate() {
            *out = column(arguments, cache, &range, scores, e);
        }
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
    if let Some(sink) = query.sink {
        let larger = if sink > maximum { sink } else { maximum };
        let (a, b) = (exp(maximum - larger), exp(sink - larger));
        sum = float::fma(sum, a, b);
        state.iter_mut().for_each(|column| *column = float::fma(*column, a, 0.0 * b));
    }
    for (out, column) in out.iter_mut().zip(state) {
        *out = *column / sum;
    }
}
