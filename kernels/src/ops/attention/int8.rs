//! Attention over int8 keys and values: integer dot products, scaled once.

use core::ops::Range;

use super::digits::{Digits, Scaled, WORDS, scales};
use super::instructions::{Instructions, with_dots};
use super::kv_chunk::{KvChunk, for_size, groups, query_rows};
use super::online_softmax::ChunkPositions;
use super::tile::or_same;
use super::{BLOCK, CHUNK, GROUP, PANEL, QUERIES, Query};
use crate::simd::{IntegerDot, Outlined, Simd};

/// The largest head size whose quantized query fits.
pub(super) const MAX_COLUMNS: usize = 512;

/// Queries quantized to int8.
pub(super) struct QuantizedQueries<'a> {
    /// The packed bytes of each query's columns, as f32 bit patterns, query by query; there is room for
    /// [`QUERIES`].
    pub words: &'a [f32],
    /// Words per query.
    pub count: usize,
    pub scales: [QueryScale; QUERIES],
}

/// The scale of a query, and the sum of its integers.
#[derive(Clone, Copy)]
pub(super) struct QueryScale {
    pub scale: f32,
    sum: i32,
}

impl<'a> QuantizedQueries<'a> {
    /// Quantizes `queries`. `scratch` has one word per four of the `columns` of every query.
    #[inline(always)]
    pub(super) fn new<S: Simd>(s: S, queries: &[Query<'_>], columns: usize, scratch: &'a mut [f32]) -> Self {
        let (count, mut scales) = (columns / 4, [QueryScale { scale: 0.0, sum: 0 }; QUERIES]);
        for ((query, words), scale) in queries.iter().zip(scratch.chunks_exact_mut(count)).zip(&mut scales) {
            *scale = quantize(s, query.values, words);
        }
        Self { words: scratch, count, scales }
    }
}

/// Quantizes a row: `q = round(x · (127 / largest))`. The scale is NaN if an element is not finite.
#[inline(always)]
fn quantize<S: Simd>(s: S, x: &[f32], words: &mut [f32]) -> QueryScale {
    let mut largest = s.splat(0.0);
    let mut poison = s.splat(0.0);
    for part in x.chunks(16) {
        let part = s.load_part(part, 0.0);
        largest = s.max(s.abs(part), largest);
        poison = s.add(poison, s.sub(part, part));
    }
    let (scale, inverse) = scales(s.largest(largest), 127.0);
    let mut sum = s.splat(0.0);
    for (part, words) in x.chunks(16).zip(words.as_chunks_mut::<4>().0) {
        let scaled = s.mul(s.load_part(part, 0.0), s.splat(inverse));
        let rounded = s.round(s.min(s.max(scaled, s.splat(-127.0)), s.splat(127.0)));
        let mut bytes = [0_i8; 16];
        s.store_bytes(rounded, &mut bytes);
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = f32::from_bits(u32::from_le_bytes(bytes.map(|byte| byte as u8)));
        }
        // Exact: the sum of integers.
        sum = s.add(sum, s.float(rounded));
    }
    QueryScale { scale: scale + s.sum(poison), sum: s.sum(sum) as i32 }
}

/// The dot products of a group's queries with the keys of some blocks, `V` vectors at a time.
#[inline(always)]
pub(super) fn score<D: IntegerDot, const V: usize>(
    d: D,
    queries: &QuantizedQueries<'_>,
    group: Range<usize>,
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    scores: &mut [f32],
) {
    for_size!(group.len(), |Q| {
        d.outline(Score::<Q, V> { queries, first: group.start, chunk, seen, scores })
    });
}

/// The dot products of `Q` queries from `first` on with the keys of some blocks, `V` vectors at a time.
struct Score<'a, const Q: usize, const V: usize> {
    queries: &'a QuantizedQueries<'a>,
    first: usize,
    chunk: &'a KvChunk<'a>,
    seen: &'a Range<usize>,
    scores: &'a mut [f32],
}

impl<D: IntegerDot, const Q: usize, const V: usize> Outlined<D> for Score<'_, Q, V> {
    #[inline(always)]
    fn run(self, d: D) {
        let s = d.vectors();
        let Self { queries, first, chunk, seen, scores } = self;
        let count = queries.count;
        let scales = &queries.scales[first..][..Q];
        let left: [_; Q] = query_rows(queries.words, first, count);
        for block in seen.clone() {
            let (keys, next) = chunk.keys(block);
            let ahead = Scaled::new(or_same(next, keys)).words;
            let keys = Scaled::new(keys);
            for first in (0..BLOCK / PANEL).step_by(V) {
                let mut dots = [[s.splat_int(0); V]; Q];
                for (dots, scale) in dots.iter_mut().zip(scales) {
                    *dots = [s.splat_int(-D::DOT_BIAS * scale.sum); V];
                }
                let panels = &keys.words[first * count..][..V * count];
                let ahead = &ahead[first * count..][..V * count];
                for c in 0..count {
                    for v in 0..V {
                        s.prefetch(&ahead[c * V + v][0]);
                    }
                    for v in 0..V {
                        let line = &panels[v * count + c];
                        for q in 0..Q {
                            dots[q][v] = d.dot(dots[q][v], line, left[q][c].to_bits() as i32);
                        }
                    }
                }
                for q in 0..Q {
                    let to = &mut scores[q * CHUNK + block * BLOCK + first * PANEL..];
                    for (v, to) in to.as_chunks_mut().0.iter_mut().enumerate().take(V) {
                        let scale = s.mul(s.load_words(&keys.scales[first + v]), s.splat(scales[q].scale));
                        s.store(s.mul(s.float(dots[q][v]), scale), to);
                    }
                }
            }
        }
    }
}

/// Computes the weighted sums of some blocks' values for a group's queries.
#[inline(always)]
pub(super) fn mix<S: IntegerDot<Vectors = S> + Simd, D: IntegerDot, M, const V: usize>(
    instructions: Instructions<S, D, M>,
    columns: usize,
    parts: &[ChunkPositions],
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    weights: &mut [f32],
    sums: &mut [f32],
) {
    // Two digits per weight: half as many queries fill the registers.
    for group in groups(parts.len(), GROUP / 2) {
        let mut left = [const { Digits::ZERO }; GROUP / 2];
        for (q, left) in group.clone().zip(&mut left) {
            left.fill(instructions.vectors, &mut weights[q * CHUNK..], parts[q], chunk, seen);
        }
        let sums = &mut sums[group.start * columns..];
        with_dots!(instructions, |d| match group.len() {
            1 => d.outline(Strips::<1, V> { left: left.first_chunk(), columns, chunk, seen, sums }),
            2 => d.outline(Strips::<2, V> { left: left.first_chunk(), columns, chunk, seen, sums }),
            _ => d.outline(Strips::<{ GROUP / 2 }, V> { left: Some(&left), columns, chunk, seen, sums }),
        });
    }
}

/// The sums of all columns for `Q` queries, `V` vectors at a time.
struct Strips<'a, const Q: usize, const V: usize> {
    left: Option<&'a [Digits; Q]>,
    columns: usize,
    chunk: &'a KvChunk<'a>,
    seen: &'a Range<usize>,
    sums: &'a mut [f32],
}

impl<D: IntegerDot, const Q: usize, const V: usize> Outlined<D> for Strips<'_, Q, V> {
    #[inline(always)]
    fn run(self, d: D) {
        let Self { left, columns, chunk, seen, sums } = self;
        let Some(left) = left else { return };
        let mut vector = 0;
        while vector + V <= columns / 16 {
            strip::<D, Q, V>(d, left, (columns, vector), chunk, seen, sums);
            vector += V;
        }
        while vector < columns / 16 {
            strip::<D, Q, 1>(d, left, (columns, vector), chunk, seen, sums);
            vector += 1;
        }
    }
}

/// Computes the sums of `V` column vectors.
#[inline(always)]
fn strip<D: IntegerDot, const Q: usize, const V: usize>(
    d: D,
    left: &[Digits; Q],
    (columns, vector): (usize, usize),
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    sums: &mut [f32],
) {
    let s = d.vectors();
    let mut high = [[s.splat_int(0); V]; Q];
    let mut low = high;
    for q in 0..Q {
        // Overflow is possible only if the scale of the digits is NaN.
        let bias = left[q].sums.map(|sum| sum.wrapping_mul(-D::DOT_BIAS));
        (high[q], low[q]) = ([s.splat_int(bias[0]); V], [s.splat_int(bias[1]); V]);
    }
    for block in seen.clone() {
        let (values, next) = chunk.values(block);
        let run = vector * WORDS..(vector + V) * WORDS;
        let ahead = &Scaled::new(or_same(next, values)).words[run.clone()];
        let values = &Scaled::new(values).words[run];
        for group in 0..WORDS {
            for v in 0..V {
                s.prefetch(&ahead[group * V + v][0]);
                let line = &values[v * WORDS + group];
                for q in 0..Q {
                    let digit = |digits: &[i8; CHUNK]| {
                        let bytes = digits.as_chunks::<4>().0[block * WORDS + group];
                        i32::from_le_bytes(bytes.map(|byte| byte as u8))
                    };
                    high[q][v] = d.dot(high[q][v], line, digit(&left[q].high));
                    low[q][v] = d.dot(low[q][v], line, digit(&left[q].low));
                }
            }
        }
    }
    for q in 0..Q {
        for v in 0..V {
            let sum = s.fma(s.float(high[q][v]), s.splat(128.0), s.float(low[q][v]));
            let to = &mut sums[q * columns + (vector + v) * 16..];
            s.store_part(s.mul(sum, s.splat(left[q].scale)), &mut to[..16]);
        }
    }
}
