//! Products of int14 keys and values, digit by digit.

use core::ops::Range;

use super::super::digits::{Digits, ScaledWeights, WORDS};
use super::super::int14::{DigitPlanes, MAX_COLUMNS, rotate_and_quantize};
use super::super::kv_chunk::KvChunk;
use super::super::online_softmax::ChunkPositions;
use super::super::{BLOCK, CHUNK, PANEL, QUERIES, Query};
use super::{AllSums, HIGH, InTiles, KEYS, LOW, MORE_KEYS, MORE_SUMS, QUERY, SUMS, TileQueries, VALUES};
use crate::ops::amx_tiles::{ROWS, Tiles};
use crate::simd::{Avx512, LANES, Simd};

/// Scores need a third accumulator; the tile of the weights' high digits is free then.
const LAST_SUMS: u8 = HIGH;

/// Rotated queries as digits.
pub(super) struct RotatedDigits<'a> {
    /// The high digits of each query, then its low ones, as f32 bit patterns, query by query; there is room for
    /// [`QUERIES`].
    words: &'a [f32],
    /// Words per query and digit.
    count: usize,
    scales: [f32; QUERIES],
}

impl<'a> RotatedDigits<'a> {
    /// Rotates and quantizes `queries`. `scratch` has one float per two of the `columns` of every query.
    #[inline(always)]
    pub(super) fn new(s: Avx512, queries: &[Query<'_>], columns: usize, scratch: &'a mut [f32]) -> Self {
        let (count, mut scales) = (columns / 4, [0.0; QUERIES]);
        for ((query, words), scale) in
            queries.iter().zip(scratch.chunks_exact_mut(2 * count)).zip(&mut scales)
        {
            let mut row = [0.0; MAX_COLUMNS];
            let row = &mut row[..columns];
            row[..query.values.len()].copy_from_slice(query.values);
            let planes = words.split_at_mut(count);
            *scale = rotate_and_quantize(s, row, |at, integers| {
                let (high, low) = split(integers);
                for (plane, digits) in [(&mut *planes.0, high), (&mut *planes.1, low)] {
                    for (word, four) in plane[at / 4..].iter_mut().zip(digits.as_chunks::<4>().0) {
                        *word = f32::from_bits(u32::from_le_bytes(four.map(|digit| digit as u8)));
                    }
                }
            });
        }
        Self { words: scratch, count, scales }
    }
}

/// Splits integers into high and low digits.
#[inline(always)]
fn split(integers: &[i16; LANES]) -> ([i8; LANES], [i8; LANES]) {
    let (mut high, mut low) = ([0; LANES], [0; LANES]);
    for ((x, high), low) in integers.iter().zip(&mut high).zip(&mut low) {
        let upper = (x + 64) >> 7;
        (*high, *low) = (upper as i8, (x - 128 * upper) as i8);
    }
    (high, low)
}

impl AllSums {
    /// Returns `128² · first + 128 · second + third` of a row, modulo 2^32.
    #[inline(always)]
    fn total(&self, row: usize) -> [i32; 16] {
        let [first, second, third] = &self.0;
        let mut totals = third[row];
        for ((total, first), second) in totals.iter_mut().zip(&first[row]).zip(&second[row]) {
            let upper = first.wrapping_mul(128).wrapping_add(*second);
            *total = upper.wrapping_mul(128).wrapping_add(*total);
        }
        totals
    }
}

impl InTiles<'_> {
    /// Computes the dot products with the keys.
    #[inline(always)]
    pub(super) fn score_int14(
        &mut self,
        s: Avx512,
        group: Range<usize>,
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        scores: &mut [f32],
    ) {
        let TileQueries::Int14(queries) = &self.queries else { return };
        let (count, scales) = (queries.count, queries.scales);
        let rows = &queries.words[group.start * 2 * count..][..ROWS * 2 * count];
        for block in seen.clone() {
            let keys = DigitPlanes::new(chunk.keys(block).0);
            let panels = keys.high.chunks_exact(count).zip(keys.low.chunks_exact(count));
            for (panel, planes) in panels.enumerate() {
                multiply_panel(&self.tiles, &mut self.sums, rows, planes, self.step);
                let to = block * BLOCK + panel * PANEL;
                let key_scale = s.load_words(&keys.scales[panel]);
                for (q, query_scale) in scales[group.clone()].iter().enumerate() {
                    let scale = s.mul(key_scale, s.splat(*query_scale));
                    let score = s.mul(s.floats(&self.sums.total(q)), scale);
                    s.store_part(score, &mut scores[q * CHUNK + to..][..PANEL]);
                }
            }
        }
    }

    /// Computes the weighted sums of the values.
    #[inline(always)]
    pub(super) fn mix_int14(
        &mut self,
        s: Avx512,
        parts: &[ChunkPositions],
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        weights: &mut [f32],
        sums: &mut [f32],
    ) {
        for (q, (digits, part)) in self.digits.iter_mut().zip(parts).enumerate() {
            let weights = ScaledWeights::new(s, &mut weights[q * CHUNK..], *part, chunk, seen);
            digits.scale = weights.quantize(s, |vector, integers| {
                let (high, low) = split(integers);
                digits.high.as_chunks_mut().0[vector] = high;
                digits.low.as_chunks_mut().0[vector] = low;
            });
        }
        for vector in 0..self.columns / 16 {
            self.multiply_strip(vector, chunk, seen);
            for (q, digits) in self.digits[..parts.len()].iter().enumerate() {
                let to = &mut sums[q * self.columns + vector * 16..][..16];
                s.store_part(s.mul(s.floats(&self.sums.total(q)), s.splat(digits.scale)), to);
            }
        }
    }

    /// Multiplies the digits of the weights by those of a column vector of the values.
    #[inline(always)]
    fn multiply_strip(&mut self, vector: usize, chunk: &KvChunk<'_>, seen: &Range<usize>) {
        let digits = self.digits.as_ptr();
        let values = |block| {
            let planes = DigitPlanes::new(chunk.values(block).0);
            [planes.high, planes.low].map(|lines| &lines[vector * WORDS..][..WORDS])
        };
        // The low digits by the low digits first: two accumulators have the shape that weights need.
        self.tiles.zero::<SUMS>();
        for block in seen.clone() {
            let [_, low_values] = values(block);
            // SAFETY: there are sixteen rows of digits, each of which has this block, and a block's lines of values.
            unsafe {
                let low = (&raw const (*digits).low).cast::<u8>().add(block * BLOCK);
                self.tiles.load::<LOW>(low, size_of::<Digits>());
                self.tiles.load_lines::<VALUES>(low_values.as_ptr().cast());
            }
            self.tiles.dot::<SUMS, LOW, VALUES>();
        }
        // SAFETY: an accumulator tile has sixteen rows of sixteen `i32`.
        unsafe { self.tiles.store_lines::<SUMS>(self.sums.0[2].as_mut_ptr().cast()) }
        self.tiles.zero::<SUMS>();
        self.tiles.zero::<MORE_SUMS>();
        for block in seen.clone() {
            let [high_values, low_values] = values(block);
            // SAFETY: as above.
            unsafe {
                let (high, low) = (&raw const (*digits).high, &raw const (*digits).low);
                let [high, low] = [high, low].map(|digits| digits.cast::<u8>().add(block * BLOCK));
                self.tiles.load::<HIGH>(high, size_of::<Digits>());
                self.tiles.load::<LOW>(low, size_of::<Digits>());
                self.tiles.load_lines::<VALUES>(high_values.as_ptr().cast());
            }
            self.tiles.dot::<SUMS, HIGH, VALUES>();
            self.tiles.dot::<MORE_SUMS, LOW, VALUES>();
            // SAFETY: as above.
            unsafe { self.tiles.load_lines::<VALUES>(low_values.as_ptr().cast()) }
            self.tiles.dot::<MORE_SUMS, HIGH, VALUES>();
        }
        self.store_sums();
    }
}

/// Multiplies the digits of sixteen queries by those of a panel of keys.
#[inline(always)]
fn multiply_panel(
    tiles: &Tiles,
    sums: &mut AllSums,
    rows: &[f32],
    (high, low): (&[[u32; 16]], &[[u32; 16]]),
    step: usize,
) {
    let count = high.len();
    assert!(rows.len() == ROWS * 2 * count && low.len() == count, "wrong number of digit words");
    tiles.zero::<SUMS>();
    tiles.zero::<MORE_SUMS>();
    tiles.zero::<LAST_SUMS>();
    for word in (0..count).step_by(step / 4) {
        // SAFETY: sixteen queries have `count` words of high and as many of low digits, a plane of the panel has
        // `count` lines (asserted), and a step divides `count`.
        unsafe {
            tiles.load::<QUERY>(rows.as_ptr().add(word).cast(), 8 * count);
            tiles.load_lines::<KEYS>(high.as_ptr().add(word).cast());
            tiles.load_lines::<MORE_KEYS>(low.as_ptr().add(word).cast());
        }
        tiles.dot::<SUMS, QUERY, KEYS>();
        tiles.dot::<MORE_SUMS, QUERY, MORE_KEYS>();
        // SAFETY: as above, for the low digits of the queries.
        unsafe { tiles.load::<QUERY>(rows.as_ptr().add(count + word).cast(), 8 * count) }
        tiles.dot::<MORE_SUMS, QUERY, KEYS>();
        tiles.dot::<LAST_SUMS, QUERY, MORE_KEYS>();
    }
    let [first, second, third] = &mut sums.0;
    // SAFETY: an accumulator tile has sixteen rows of sixteen `i32`.
    unsafe {
        tiles.store_lines::<SUMS>(first.as_mut_ptr().cast());
        tiles.store_lines::<MORE_SUMS>(second.as_mut_ptr().cast());
        tiles.store_lines::<LAST_SUMS>(third.as_mut_ptr().cast());
    }
}
