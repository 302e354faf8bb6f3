//! Attention over keys and values of eight bits: sums of integers, scaled once.

use core::ops::Range;

use super::body::{Chunk, for_size, groups};
use super::softmax::{ChunkPositions, within};
use super::tile::or_same;
use super::{BLOCK, CHUNK, GROUP, PANEL, QUERIES, Query};
use crate::simd::Simd;

/// The largest head whose quantised query fits.
pub(super) const MOST_COLUMNS: usize = 512;
/// The largest integer of a weight: two digits of seven bits.
const LARGEST: f32 = 16383.0;
/// Words of four positions in a block.
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

/// Queries as integers.
pub(super) struct QuantizedQueries<'a> {
    /// The words of a query's columns, as bits, then those of the next; there is place for [`QUERIES`].
    pub words: &'a [f32],
    /// Words of a query.
    pub count: usize,
    /// What an integer of a query is worth, and their sum.
    pub worth: [(f32, i32); QUERIES],
}

impl<'a> QuantizedQueries<'a> {
    pub(super) const NONE: Self = Self { words: &[], count: 0, worth: [(0.0, 0); QUERIES] };

    /// `scratch` takes a word for four of `columns` of every query.
    #[inline(always)]
    pub(super) fn new<S: Simd>(s: S, queries: &[Query<'_>], columns: usize, scratch: &'a mut [f32]) -> Self {
        let count = columns / 4;
        let mut worth = [(0.0, 0); QUERIES];
        for ((query, words), worth) in queries.iter().zip(scratch.chunks_exact_mut(count)).zip(&mut worth) {
            *worth = quantise(s, query.values, words);
        }
        Self { words: scratch, count, worth }
    }
}

/// Integers of a row, what one of them is worth, and their sum: `q = round(x · (most / largest))`.
#[inline(always)]
fn quantise<S: Simd>(s: S, x: &[f32], words: &mut [f32]) -> (f32, i32) {
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
        // Exact: integers.
        sum = s.add(sum, s.float(rounded));
    }
    (scale + s.sum(poison), s.sum(sum) as i32)
}

/// What an integer is worth and its inverse, where `most` stands for the largest magnitude.
#[inline(always)]
pub(super) fn scales(largest: f32, most: f32) -> (f32, f32) {
    const SMALLEST: f32 = 7.888_609e-31;
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / most, most / largest) }
}

/// The dot products of a group's queries with the keys of some blocks.
#[inline(always)]
pub(super) fn score<S: Simd, const V: usize>(
    s: S,
    whole: &QuantizedQueries<'_>,
    group: Range<usize>,
    chunk: &Chunk<'_>,
    seen: &Range<usize>,
    scores: &mut [f32],
) {
    let count = whole.count;
    for_size!(group.len(), |Q| {
        let worth = &whole.worth[group.start..][..Q];
        let mut left: [&[f32]; Q] = [&[]; Q];
        for (left, words) in left.iter_mut().zip(whole.words[group.start * count..].chunks_exact(count)) {
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
    });
}

/// A query's weights as integers of two digits, a byte each, on lines of the cache.
#[repr(C, align(64))]
pub(super) struct Digits {
    pub high: [i8; CHUNK],
    pub low: [i8; CHUNK],
    sums: [i32; 2],
    pub worth: f32,
}

impl Digits {
    pub(super) const ZERO: Self = Self { high: [0; CHUNK], low: [0; CHUNK], sums: [0; 2], worth: 0.0 };

    /// Takes the scales of the values into the weights of a query, which are zero for positions it does not see.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(
        &mut self,
        s: S,
        weights: &mut [f32],
        part: ChunkPositions,
        chunk: &Chunk<'_>,
        seen: &Range<usize>,
    ) {
        let range = (part.first - chunk.start, part.end - chunk.start);
        let weights = &mut weights.as_chunks_mut::<16>().0[..CHUNK / 16];
        let mut largest = s.splat(0.0);
        // Stays zero unless a weight or a value is not finite.
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
            // Rounding down: what is left after the division lies within 63.5 of its middle.
            let high = s.round(s.fma(whole, s.splat(1.0 / 128.0), s.splat(-63.5 / 128.0)));
            let low = s.fma(s.float(high), s.splat(-128.0), whole);
            s.store_bytes(high, &mut self.high.as_chunks_mut().0[vector]);
            s.store_bytes(s.round(low), &mut self.low.as_chunks_mut().0[vector]);
            sums = [s.add(sums[0], s.float(high)), s.add(sums[1], low)];
        }
        self.sums = [s.sum(sums[0]) as i32, s.sum(sums[1]) as i32];
    }
}

/// The weighted values of some blocks for a group's queries.
#[inline(always)]
pub(super) fn mix<S: Simd, const V: usize>(
    s: S,
    columns: usize,
    parts: &[ChunkPositions],
    chunk: &Chunk<'_>,
    seen: &Range<usize>,
    weights: &mut [f32],
    sums: &mut [f32],
) {
    // Two digits each: half as many queries fill the registers.
    for group in groups(parts.len(), GROUP / 2) {
        let mut left = [const { Digits::ZERO }; GROUP / 2];
        for (q, left) in group.clone().zip(&mut left) {
            left.fill(s, &mut weights[q * CHUNK..], parts[q], chunk, seen);
        }
        let sums = &mut sums[group.start * columns..];
        match group.len() {
            1 => strips::<S, 1, V>(s, left.first_chunk(), columns, chunk, seen, sums),
            2 => strips::<S, 2, V>(s, left.first_chunk(), columns, chunk, seen, sums),
            _ => strips::<S, { GROUP / 2 }, V>(s, left.first_chunk(), columns, chunk, seen, sums),
        }
    }
}

/// The sums of all columns for `Q` queries.
#[inline(always)]
fn strips<S: Simd, const Q: usize, const V: usize>(
    s: S,
    left: Option<&[Digits; Q]>,
    columns: usize,
    chunk: &Chunk<'_>,
    seen: &Range<usize>,
    sums: &mut [f32],
) {
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

/// The sums of `V` vectors of columns.
#[inline(always)]
fn strip<S: Simd, const Q: usize, const V: usize>(
    s: S,
    left: &[Digits; Q],
    (columns, vector): (usize, usize),
    chunk: &Chunk<'_>,
    seen: &Range<usize>,
    sums: &mut [f32],
) {
    let mut high = [[s.splat_int(0); V]; Q];
    let mut low = high;
    for q in 0..Q {
        // They wrap only where the digits are worth no number.
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
