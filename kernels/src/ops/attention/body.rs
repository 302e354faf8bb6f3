//! Attention over sixteen-lane vectors: keys side by side for scores, columns side by side for sums.

use core::ops::Range;

use super::{
    Arguments, BLOCK, CHUNK, Cache, CacheType, PANEL, QUERIES, Query, chunk_of, chunk_positions, padded,
};
use crate::float;
use crate::math;
use crate::ops::elementwise::soft_cap;
use crate::simd::Simd;

/// Panels whose scores are computed together.
const PANELS: usize = 2;
/// Vectors of columns whose sums are computed together.
const VECTORS: usize = 4;

/// What a query has gathered so far.
#[derive(Clone, Copy)]
struct State {
    maximum: f32,
    sum: f32,
    begun: bool,
}

/// A query's part of a chunk.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    end: usize,
}

#[inline(always)]
pub(super) fn attend<S: Simd>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    match queries.len() {
        1 => attend_with::<S, 1>(s, arguments, queries, cache, scratch, out),
        2 => attend_with::<S, 2>(s, arguments, queries, cache, scratch, out),
        3 => attend_with::<S, 3>(s, arguments, queries, cache, scratch, out),
        4 => attend_with::<S, QUERIES>(s, arguments, queries, cache, scratch, out),
        _ => {}
    }
}

#[inline(always)]
fn attend_with<S: Simd, const Q: usize>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let Some(queries) = queries.first_chunk::<Q>() else { return };
    let columns = padded(arguments.head_size);
    let (scores, rest) = scratch.split_at_mut(QUERIES * CHUNK);
    let (totals, rest) = rest.split_at_mut(QUERIES * columns);
    let chunk_sums = &mut rest[..QUERIES * columns];
    let mut states = [State { maximum: 0.0, sum: 0.0, begun: false }; Q];
    let first = queries.iter().map(|query| query.first).min().unwrap_or(0);
    let last = queries.iter().map(|query| query.position).max().unwrap_or(0);
    for chunk in chunk_of(first)..=chunk_of(last) {
        let positions = chunk_positions(chunk);
        let parts = queries.map(|query| Part {
            first: query.first.max(positions.start),
            end: (query.position + 1).min(positions.end),
        });
        let covered = parts.iter().map(|part| part.first).min().unwrap_or(0)
            ..parts.iter().map(|part| part.end).max().unwrap_or(0);
        dot_products::<S, Q>(s, arguments, queries, cache, covered, scores);
        let mut sums = [(0.0, 0.0); Q];
        for (q, part) in parts.iter().enumerate() {
            let scores = &mut scores[q * CHUNK..][..CHUNK];
            sums[q] = weights(s, arguments, &queries[q], *part, positions.start, scores);
        }
        mix::<S, Q>(s, arguments, &parts, cache, scores, chunk_sums);
        for (q, part) in parts.iter().enumerate() {
            if part.first < part.end {
                let columns = q * columns..(q + 1) * columns;
                merge(s, &mut states[q], sums[q], &mut totals[columns.clone()], &chunk_sums[columns]);
            }
        }
    }
    for (q, out) in out.iter_mut().enumerate().take(Q) {
        let sum = s.splat(states[q].sum);
        let totals = &totals[q * columns..][..arguments.head_size];
        for (total, out) in totals.chunks(16).zip(out.chunks_mut(16)) {
            s.store_part(s.div(s.load_part(total, 0.0), sum), out);
        }
    }
}

/// The dot products of all queries with the keys of whole panels around `covered`.
#[inline(always)]
fn dot_products<S: Simd, const Q: usize>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>; Q],
    cache: &dyn Cache,
    covered: Range<usize>,
    scores: &mut [f32],
) {
    const STEP: usize = PANELS * PANEL;
    let mut position = covered.start / STEP * STEP;
    while position < covered.end {
        let (keys, _) = cache.block(position / BLOCK);
        let panel_words = keys.len() / (BLOCK / PANEL);
        let panels = &keys[position % BLOCK / PANEL * panel_words..][..PANELS * panel_words];
        let mut dots = [[s.splat(0.0); PANELS]; Q];
        match arguments.cache {
            CacheType::F16 => {
                for pair in 0..arguments.head_size / 2 {
                    for p in 0..PANELS {
                        let Some(words) = panels[p * panel_words + pair * PANEL..].first_chunk() else {
                            continue;
                        };
                        let (low, high) = s.load_half_pairs(words);
                        for q in 0..Q {
                            let x = &queries[q].values[2 * pair..2 * pair + 2];
                            dots[q][p] = s.fma(s.splat(x[0]), low, dots[q][p]);
                            dots[q][p] = s.fma(s.splat(x[1]), high, dots[q][p]);
                        }
                    }
                }
            }
            CacheType::F32 => {
                for column in 0..arguments.head_size {
                    for p in 0..PANELS {
                        let Some(words) = panels[p * panel_words + column * PANEL..].first_chunk::<16>()
                        else {
                            continue;
                        };
                        let key = s.load(&words.map(f32::from_bits));
                        for q in 0..Q {
                            dots[q][p] = s.fma(s.splat(queries[q].values[column]), key, dots[q][p]);
                        }
                    }
                }
            }
        }
        for (q, dots) in dots.iter().enumerate() {
            for (p, dot) in dots.iter().enumerate() {
                s.store_part(*dot, &mut scores[q * CHUNK + position % CHUNK + p * PANEL..][..PANEL]);
            }
        }
        position += STEP;
    }
}

/// Turns a query's dot products into weights, in place; returns the chunk's maximum and sum.
#[inline(always)]
fn weights<S: Simd>(
    s: S,
    arguments: &Arguments,
    query: &Query<'_>,
    part: Part,
    start: usize,
    scores: &mut [f32],
) -> (f32, f32) {
    if part.first >= part.end {
        return (0.0, 0.0);
    }
    let (first, end) = (part.first - start, part.end - start);
    let vectors = first / PANEL..end.div_ceil(PANEL);
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut lanes = [0.0_f32; PANEL];
    for (lane, value) in lanes.iter_mut().enumerate() {
        *value = lane as f32;
    }
    let lane_numbers = s.load(&lanes);
    let mut maximum = lowest;
    for vector in vectors.clone() {
        let part = &mut scores[vector * PANEL..][..PANEL];
        let mut score = s.mul(s.load_part(part, 0.0), s.splat(arguments.scale));
        if arguments.softcap != 0.0 {
            score = soft_cap(s, score, arguments.softcap);
        }
        let index = s.add(lane_numbers, s.splat((vector * PANEL) as f32));
        if query.slope != 0.0 {
            let distance = s.sub(s.add(index, s.splat(start as f32)), s.splat(query.position as f32));
            score = s.fma(s.splat(query.slope), distance, score);
        }
        // Lanes before the first and after the last key of the query must not be seen.
        score = s.select_less(index, s.splat(end as f32), score, lowest);
        score = s.select_less(index, s.splat(first as f32), lowest, score);
        maximum = s.max(score, maximum);
        s.store_part(score, part);
    }
    let maximum = s.largest(maximum);
    let shift = s.splat(maximum);
    let mut sum = s.splat(0.0);
    for vector in vectors {
        let part = &mut scores[vector * PANEL..][..PANEL];
        let weight = math::exp(s, s.sub(s.load_part(part, 0.0), shift));
        sum = s.add(sum, weight);
        s.store_part(weight, part);
    }
    (maximum, s.sum(sum))
}

/// The weighted sums of values: positions that all queries see together are taken for all at once.
#[inline(always)]
fn mix<S: Simd, const Q: usize>(
    s: S,
    arguments: &Arguments,
    parts: &[Part; Q],
    cache: &dyn Cache,
    weights: &[f32],
    sums: &mut [f32],
) {
    let columns = padded(arguments.head_size);
    sums.fill(0.0);
    let common_first = parts.iter().map(|part| part.first).max().unwrap_or(0);
    let common_end = parts.iter().map(|part| part.end).min().unwrap_or(0).max(common_first);
    for (q, part) in parts.iter().enumerate() {
        let alone = part.first..common_first.min(part.end);
        let (weights, sums) = (&weights[q * CHUNK..], &mut sums[q * columns..][..columns]);
        mix_range::<S, 1>(s, arguments, alone, cache, weights, sums);
    }
    mix_range::<S, Q>(s, arguments, common_first..common_end, cache, weights, sums);
    for (q, part) in parts.iter().enumerate() {
        let alone = common_end.max(part.first)..part.end;
        let (weights, sums) = (&weights[q * CHUNK..], &mut sums[q * columns..][..columns]);
        mix_range::<S, 1>(s, arguments, alone, cache, weights, sums);
    }
}

/// Adds the values of `positions` to the sums of `Q` queries, which all see them.
#[inline(always)]
fn mix_range<S: Simd, const Q: usize>(
    s: S,
    arguments: &Arguments,
    positions: Range<usize>,
    cache: &dyn Cache,
    weights: &[f32],
    sums: &mut [f32],
) {
    let columns = padded(arguments.head_size);
    let mut position = positions.start;
    while position < positions.end {
        let end = positions.end.min((position / BLOCK + 1) * BLOCK);
        let (_, values) = cache.block(position / BLOCK);
        let mut column = 0;
        while column < columns {
            let run = position..end;
            if column + VECTORS * 16 <= columns {
                mix_columns::<S, Q, VECTORS>(s, arguments.cache, columns, column, run, values, weights, sums);
                column += VECTORS * 16;
            } else {
                mix_columns::<S, Q, 1>(s, arguments.cache, columns, column, run, values, weights, sums);
                column += 16;
            }
        }
        position = end;
    }
}

#[inline(always)]
fn mix_columns<S: Simd, const Q: usize, const V: usize>(
    s: S,
    cache: CacheType,
    columns: usize,
    column: usize,
    positions: Range<usize>,
    values: &[u32],
    weights: &[f32],
    sums: &mut [f32],
) {
    let mut accumulators = [[s.splat(0.0); V]; Q];
    for q in 0..Q {
        for v in 0..V {
            accumulators[q][v] = s.load_part(&sums[q * columns + column + 16 * v..][..16], 0.0);
        }
    }
    for position in positions {
        let start = position % BLOCK * columns + column;
        let row: [S::F; V] = core::array::from_fn(|v| load_values(s, cache, values, start + 16 * v));
        for q in 0..Q {
            let weight = s.splat(weights[q * CHUNK + position % CHUNK]);
            for v in 0..V {
                accumulators[q][v] = s.fma(weight, row[v], accumulators[q][v]);
            }
        }
    }
    for q in 0..Q {
        for v in 0..V {
            s.store_part(accumulators[q][v], &mut sums[q * columns + column + 16 * v..][..16]);
        }
    }
}

/// Sixteen cached values from number `index`, a multiple of 16.
#[inline(always)]
fn load_values<S: Simd>(s: S, cache: CacheType, values: &[u32], index: usize) -> S::F {
    match cache {
        CacheType::F32 => match values[index..].first_chunk::<16>() {
            Some(words) => s.load(&words.map(f32::from_bits)),
            None => s.splat(0.0),
        },
        CacheType::F16 => match values[index / 2..].first_chunk::<8>() {
            Some(words) => {
                let mut halves = [0_u16; 16];
                for (pair, word) in halves.as_chunks_mut::<2>().0.iter_mut().zip(words) {
                    *pair = [*word as u16, (*word >> 16) as u16];
                }
                s.load_half(&halves)
            }
            None => s.splat(0.0),
        },
    }
}

/// Adds a chunk to what a query has gathered.
#[inline(always)]
fn merge<S: Simd>(s: S, state: &mut State, chunk: (f32, f32), totals: &mut [f32], chunk_sums: &[f32]) {
    let (maximum, sum) = chunk;
    if !state.begun {
        *state = State { maximum, sum, begun: true };
        totals.copy_from_slice(chunk_sums);
        return;
    }
    let larger = if maximum > state.maximum { maximum } else { state.maximum };
    let factor = |maximum: f32| s.largest(math::exp(s, s.splat(maximum - larger)));
    let (a, b) = (factor(state.maximum), factor(maximum));
    *state = State { maximum: larger, sum: float::fma(state.sum, a, sum * b), begun: true };
    for (total, chunk) in totals.chunks_mut(16).zip(chunk_sums.chunks(16)) {
        let scaled = s.mul(s.load_part(chunk, 0.0), s.splat(b));
        s.store_part(s.fma(s.load_part(total, 0.0), s.splat(a), scaled), total);
    }
}
