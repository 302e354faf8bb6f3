//! Online softmax (arXiv:1805.02867): converts scores to weights and merges chunks.

use core::ops::Range;

use super::{AttentionArguments, CHUNK, PANEL, Query};
use crate::float;
use crate::math;
use crate::ops::elementwise::soft_cap;
use crate::simd::{Simd, TOGETHER};

/// Running maximum and sum of a query; empty if `sum` is zero.
#[derive(Clone, Copy)]
pub(super) struct SoftmaxState {
    pub maximum: f32,
    pub sum: f32,
}

impl SoftmaxState {
    pub(super) const EMPTY: Self = Self { maximum: 0.0, sum: 0.0 };
}

/// The positions of a chunk that a query attends to.
#[derive(Clone, Copy)]
pub(super) struct ChunkPositions {
    pub first: usize,
    pub end: usize,
    /// Whether the query's bias applies.
    pub biased: bool,
}

impl ChunkPositions {
    pub(super) fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// Returns the vectors of the chunk that starts at `start` which hold at least one of the positions.
    fn vectors(self, start: usize) -> Range<usize> {
        (self.first - start) / PANEL..(self.end - start).div_ceil(PANEL)
    }

    /// Returns the vectors that lie entirely within the positions.
    fn whole_vectors(self, start: usize) -> Range<usize> {
        let first = (self.first - start).div_ceil(PANEL);
        first..((self.end - start) / PANEL).max(first)
    }
}

/// Converts the dot products of some queries with the keys of the chunk that starts at `start` to softmax
/// weights, in place: [`CHUNK`] for each query.
#[inline(always)]
pub(super) fn weights<S: Simd>(
    s: S,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    parts: &[ChunkPositions],
    start: usize,
    scores: &mut [f32],
    states: &mut [SoftmaxState],
) {
    let rows = scores.as_chunks_mut::<16>().0.chunks_exact_mut(CHUNK / 16);
    for (((query, part), scores), state) in queries.iter().zip(parts).zip(rows).zip(&mut *states) {
        *state = SoftmaxState::EMPTY;
        if !part.is_empty() {
            state.maximum = scale(s, arguments, query, *part, start, scores);
        }
    }
    // A separate loop, so that no query stalls on its own maximum.
    let rows = scores.as_chunks_mut::<16>().0.chunks_exact_mut(CHUNK / 16);
    for ((part, scores), state) in parts.iter().zip(rows).zip(states) {
        if !part.is_empty() {
            state.sum = exponentiate(s, &mut scores[part.vectors(start)], state.maximum);
        }
    }
}

/// Converts the dot products of a query to scores, −infinity for masked keys, and returns the largest score.
#[inline(always)]
fn scale<S: Simd>(
    s: S,
    arguments: &AttentionArguments,
    query: &Query<'_>,
    part: ChunkPositions,
    start: usize,
    scores: &mut [[f32; 16]],
) -> f32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut maxima = [lowest; TOGETHER];
    let vectors = part.vectors(start);
    let whole = match arguments.softcap == 0.0 && query.slope == 0.0 && !part.biased {
        true => part.whole_vectors(start),
        false => vectors.start..vectors.start,
    };
    for vector in (vectors.start..whole.start).chain(whole.end..vectors.end) {
        let score = scale_one(s, arguments, query, part, start, vector, &scores[vector]);
        maxima[0] = s.max(score, maxima[0]);
        s.store(score, &mut scores[vector]);
    }
    let (runs, rest) = scores[whole].as_chunks_mut::<TOGETHER>();
    let factor = s.splat(arguments.scale);
    for run in runs {
        scale_each(s, run, factor, &mut maxima);
    }
    for score in rest {
        scale_each(s, core::array::from_mut(score), factor, &mut maxima);
    }
    let [a, b, c, d] = maxima;
    s.largest(s.max(s.max(a, b), s.max(c, d)))
}

/// Scales vectors of scores that need no softcap, slope, bias or mask, with one running maximum for each
/// vector.
#[inline(always)]
fn scale_each<S: Simd, const N: usize>(
    s: S,
    scores: &mut [[f32; 16]; N],
    factor: S::F,
    maxima: &mut [S::F; TOGETHER],
) {
    for (scores, maximum) in scores.iter_mut().zip(maxima) {
        let score = s.mul(s.load(scores), factor);
        *maximum = s.max(score, *maximum);
        s.store(score, scores);
    }
}

/// Returns the scores of vector `vector` of a chunk: scale, softcap, slope, bias and mask.
#[inline(always)]
fn scale_one<S: Simd>(
    s: S,
    arguments: &AttentionArguments,
    query: &Query<'_>,
    part: ChunkPositions,
    start: usize,
    vector: usize,
    dots: &[f32; 16],
) -> S::F {
    let mut score = s.mul(s.load(dots), s.splat(arguments.scale));
    if arguments.softcap != 0.0 {
        score = soft_cap(s, score, arguments.softcap);
    }
    if query.slope != 0.0 {
        let position = s.add(lane_numbers(s, vector), s.splat(start as f32));
        let distance = s.sub(position, s.splat(query.position as f32));
        score = s.fma(s.splat(query.slope), distance, score);
    }
    if part.biased {
        let here = start + vector * PANEL..(start + (vector + 1) * PANEL).min(query.bias.len());
        score = s.add(score, s.load_part(&query.bias[here], 0.0));
    }
    within(s, vector, (part.first - start, part.end - start), score, s.splat(f32::NEG_INFINITY))
}

/// Replaces scores by weights and returns their sum.
#[inline(always)]
fn exponentiate<S: Simd>(s: S, scores: &mut [[f32; 16]], maximum: f32) -> f32 {
    let shift = s.splat(maximum);
    let mut sum = s.splat(0.0);
    let (runs, rest) = scores.as_chunks_mut::<TOGETHER>();
    for run in runs {
        exponentiate_each(s, run, shift, &mut sum);
    }
    for score in rest {
        exponentiate_each(s, core::array::from_mut(score), shift, &mut sum);
    }
    s.sum(sum)
}

#[inline(always)]
fn exponentiate_each<S: Simd, const N: usize>(
    s: S,
    scores: &mut [[f32; 16]; N],
    shift: S::F,
    sum: &mut S::F,
) {
    let mut x = [shift; N];
    for (x, score) in x.iter_mut().zip(&*scores) {
        *x = s.sub(s.load(score), shift);
    }
    for (weight, score) in math::exp_each(s, x).into_iter().zip(scores) {
        *sum = s.add(*sum, weight);
        s.store(weight, score);
    }
}

/// Returns `x`, with the lanes of vector `vector` of a chunk that are not in `range` replaced by `outside`.
#[inline(always)]
pub(super) fn within<S: Simd>(s: S, vector: usize, range: (usize, usize), x: S::F, outside: S::F) -> S::F {
    if range.0 <= vector * PANEL && (vector + 1) * PANEL <= range.1 {
        return x;
    }
    let index = lane_numbers(s, vector);
    let x = s.select_less(index, s.splat(range.1 as f32), x, outside);
    s.select_less(index, s.splat(range.0 as f32), outside, x)
}

/// Returns the positions of a vector's lanes, relative to the chunk.
#[inline(always)]
fn lane_numbers<S: Simd>(s: S, vector: usize) -> S::F {
    const NUMBERS: [f32; PANEL] =
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
    s.add(s.load(&NUMBERS), s.splat((vector * PANEL) as f32))
}

/// Merges a chunk into the running state of a query.
#[inline(always)]
pub(super) fn merge<S: Simd>(
    s: S,
    state: &mut SoftmaxState,
    chunk: SoftmaxState,
    totals: &mut [f32],
    chunk_sums: &[f32],
) {
    if chunk.sum == 0.0 {
        return;
    }
    if state.sum == 0.0 {
        *state = chunk;
        for (total, chunk) in totals.as_chunks_mut().0.iter_mut().zip(chunk_sums.as_chunks().0) {
            s.store(s.load(chunk), total);
        }
        return;
    }
    let larger = if chunk.maximum > state.maximum { chunk.maximum } else { state.maximum };
    let (a, b) = (factor(s, state.maximum - larger), factor(s, chunk.maximum - larger));
    *state = SoftmaxState { maximum: larger, sum: float::fma(state.sum, a, chunk.sum * b) };
    for (total, chunk) in totals.as_chunks_mut().0.iter_mut().zip(chunk_sums.as_chunks().0) {
        let scaled = s.mul(s.load(chunk), s.splat(b));
        s.store(s.fma(s.load(total), s.splat(a), scaled), total);
    }
}

/// Returns e^x of a scalar.
#[inline(always)]
fn factor<S: Simd>(s: S, x: f32) -> f32 {
    let mut lanes = [0.0; 16];
    s.store(math::exp(s, s.splat(x)), &mut lanes);
    lanes[0]
}
