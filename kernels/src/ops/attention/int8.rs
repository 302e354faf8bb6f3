//! Attention over int8 keys and values: integer dot products, scaled once.

use core::ops::Range;

use super::kv_chunk::{KvChunk, groups};
use super::online_softmax::{ChunkPositions, within};
use super::tile::or_same;
use super::{BLOCK, CHUNK, GROUP, PANEL, QUERIES, Query};
use crate::simd::{Outlined, Simd};

/// The largest head size whose quantized query fits.
pub(super) const MAX_COLUMNS: usize = 512;
/// The largest quantized weight: two 7-bit digits.
const LARGEST: f32 = 16383.0;
/// Words per column in a block of values: four positions each.
pub(super) const WORDS: usize = BLOCK / 4;

/// A block's keys or values as words, and the scale of each position.
#[derive(Clone, Copy)]
pub(super) struct Scaled<'a> {
    pub words: &'a [[u32; 16]],
    pub scales: &'a [[u32; 16]],
}

impl<'a> Scaled<'a> {
    pub(super) fn new(words: &'a [u32]) -> Self {
        let (words, scales) = words.as_chunks().0.split_at(words.len() / 16 - BLOCK / 16);
        Self { words, scales }
    }
}

/// Queries quantized to int8.
pub(super) struct QuantizedQueries<'a> {
    /// The packed bytes of each query's columns, as f32 bit patterns, query by query; there is room for
    /// [`QUERIES`].
    pub words: &'a [f32],
    /// Words per query.
    pub count: usize,
    /// The scale of each query, and the sum of its integers.
    pub worth: [(f32, i32); QUERIES],
}

impl<'a> QuantizedQueries<'a> {
    pub(super) const NONE: Self = Self { words: &[], count: 0, worth: [(0.0, 0); QUERIES] };

    /// Quantizes `queries`. `scratch` has one word per four of the `columns` of every query.
    #[inline(always)]
    pub(super) fn new<S: Simd>(s: S, queries: &[Query<'_>], columns: usize, scratch: &'a mut [f32]) -> Self {
        let count = columns / 4;
        let mut worth = [(0.0, 0); QUERIES];
        for ((query, words), worth) in queries.iter().zip(scratch.chunks_exact_mut(count)).zip(&mut worth) {
            *worth = quantize(s, query.values, words);
        }
        Self { words: scratch, count, worth }
    }
}

/// Quantizes a row: `q = round(x · (max_code / largest))`. Returns the scale and the sum of the integers; the
/// scale is NaN if an element is not finite.
#[inline(always)]
fn quantize<S: Simd>(s: S, x: &[f32], words: &mut [f32]) -> (f32, i32) {
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
    (scale + s.sum(poison), s.sum(sum) as i32)
}

/// Returns the scale and its inverse, with the largest magnitude mapped to `max_code`.
#[inline(always)]
pub(super) fn scales(largest: f32, max_code: f32) -> (f32, f32) {
    const SMALLEST: f32 = 7.888_609e-31;
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / max_code, max_code / largest) }
}

/// The dot products of `Q` queries from `first` on with the keys of some blocks, `V` vectors at a time.
pub(super) struct Score<'a, const Q: usize, const V: usize> {
    pub queries: &'a QuantizedQueries<'a>,
    pub first: usize,
    pub chunk: &'a KvChunk<'a>,
    pub seen: &'a Range<usize>,
    pub scores: &'a mut [f32],
}

impl<S: Simd, const Q: usize, const V: usize> Outlined<S> for Score<'_, Q, V> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { queries, first, chunk, seen, scores } = self;
        let count = queries.count;
        let worth = &queries.worth[first..][..Q];
        let mut left: [&[f32]; Q] = [&[]; Q];
        for (left, words) in left.iter_mut().zip(queries.words[first * count..].chunks_exact(count)) {
            *left = words;
        }
        assert!(left.iter().all(|left| left.len() == count), "beyond the queries");
        for block in seen.clone() {
            let (keys, next) = chunk.keys(block);
            let ahead = Scaled::new(or_same(next, keys)).words;
            let keys = Scaled::new(keys);
            for first in (0..BLOCK / PANEL).step_by(V) {
                let mut dots = [[s.splat_int(0); V]; Q];
                for (dots, worth) in dots.iter_mut().zip(worth) {
                    *dots = [s.splat_int(-S::DOT_BIAS * worth.1); V];
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
                            dots[q][v] = s.dot(dots[q][v], line, left[q][c].to_bits() as i32);
                        }
                    }
                }
                for q in 0..Q {
                    let to = &mut scores[q * CHUNK + block * BLOCK + first * PANEL..];
                    for (v, to) in to.as_chunks_mut().0.iter_mut().enumerate().take(V) {
                        let scale = s.mul(s.load_words(&keys.scales[first + v]), s.splat(worth[q].0));
                        s.store(s.mul(s.float(dots[q][v]), scale), to);
                    }
                }
            }
        }
    }
}

/// The quantized weights of a query as two digits of a byte each, aligned to cache lines.
#[repr(C, align(64))]
pub(super) struct Digits {
    pub high: [i8; CHUNK],
    pub low: [i8; CHUNK],
    sums: [i32; 2],
    pub worth: f32,
}

impl Digits {
    pub(super) const ZERO: Self = Self { high: [0; CHUNK], low: [0; CHUNK], sums: [0; 2], worth: 0.0 };

    /// Multiplies a query's weights by the scales of the values and quantizes them. Weights of masked
    /// positions become zero.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(
        &mut self,
        s: S,
        weights: &mut [f32],
        part: ChunkPositions,
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
    ) {
        let range = (part.first - chunk.start, part.end - chunk.start);
        let weights = &mut weights.as_chunks_mut::<16>().0[..CHUNK / 16];
        let mut largest = s.splat(0.0);
        // Stays zero unless a weight or scale is not finite.
        let mut poison = s.splat(0.0);
        for block in seen.clone() {
            let scales = Scaled::new(chunk.blocks[block].1).scales;
            for (vector, scale) in (block * (BLOCK / 16)..).zip(scales) {
                let weight = s.mul(s.load(&weights[vector]), s.load_words(scale));
                let weight = within(s, vector, range, weight, s.splat(0.0));
                s.store(weight, &mut weights[vector]);
                largest = s.max(weight, largest);
                poison = s.fma(weight, s.splat(0.0), poison);
            }
        }
        let (worth, inverse) = scales(s.largest(largest), LARGEST);
        self.worth = worth + s.sum(poison);
        let mut sums = [s.splat(0.0); 2];
        let vectors = seen.start * (BLOCK / 16)..seen.end * (BLOCK / 16);
        for (vector, weight) in vectors.clone().zip(&weights[vectors]) {
            let whole = s.float(s.round(s.mul(s.load(weight), s.splat(inverse))));
            // Floor division: after the shift by 63.5, rounding to nearest gives the floor of `whole / 128`.
            let high = s.round(s.fma(whole, s.splat(1.0 / 128.0), s.splat(-63.5 / 128.0)));
            let low = s.fma(s.float(high), s.splat(-128.0), whole);
            s.store_bytes(high, &mut self.high.as_chunks_mut().0[vector]);
            s.store_bytes(s.round(low), &mut self.low.as_chunks_mut().0[vector]);
            sums = [s.add(sums[0], s.float(high)), s.add(sums[1], low)];
        }
        self.sums = [s.sum(sums[0]) as i32, s.sum(sums[1]) as i32];
    }
}

/// Computes the weighted sums of some blocks' values for a group's queries.
#[inline(always)]
pub(super) fn mix<S: Simd, const V: usize>(
    s: S,
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
            left.fill(s, &mut weights[q * CHUNK..], parts[q], chunk, seen);
        }
        let sums = &mut sums[group.start * columns..];
        match group.len() {
            1 => s.outline(Strips::<1, V> { left: left.first_chunk(), columns, chunk, seen, sums }),
            2 => s.outline(Strips::<2, V> { left: left.first_chunk(), columns, chunk, seen, sums }),
            _ => s.outline(Strips::<{ GROUP / 2 }, V> { left: Some(&left), columns, chunk, seen, sums }),
        }
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

impl<S: Simd, const Q: usize, const V: usize> Outlined<S> for Strips<'_, Q, V> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { left, columns, chunk, seen, sums } = self;
        let Some(left) = left else { return };
        let mut vector = 0;
        while vector + V <= columns / 16 {
            strip::<S, Q, V>(s, left, (columns, vector), chunk, seen, sums);
            vector += V;
        }
        while vector < columns / 16 {
            strip::<S, Q, 1>(s, left, (columns, vector), chunk, seen, sums);
            vector += 1;
        }
    }
}

/// Computes the sums of `V` column vectors.
#[inline(always)]
fn strip<S: Simd, const Q: usize, const V: usize>(
    s: S,
    left: &[Digits; Q],
    (columns, vector): (usize, usize),
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    sums: &mut [f32],
) {
    let mut high = [[s.splat_int(0); V]; Q];
    let mut low = high;
    for q in 0..Q {
        // Overflow is possible only if the scale of the digits is NaN.
        let bias = left[q].sums.map(|sum| sum.wrapping_mul(-S::DOT_BIAS));
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
                    high[q][v] = s.dot(high[q][v], line, digit(&left[q].high));
                    low[q][v] = s.dot(low[q][v], line, digit(&left[q].low));
                }
            }
        }
    }
    for q in 0..Q {
        for v in 0..V {
            let sum = s.fma(s.float(high[q][v]), s.splat(128.0), s.float(low[q][v]));
            let to = &mut sums[q * columns + (vector + v) * 16..];
            s.store_part(s.mul(sum, s.splat(left[q].worth)), &mut to[..16]);
        }
    }
}
