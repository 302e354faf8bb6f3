//! Numbers as integers with a scale, and softmax weights as two 7-bit digits.

use core::ops::Range;

use super::kv_chunk::KvChunk;
use super::online_softmax::{ChunkPositions, within};
use super::{BLOCK, CHUNK};
use crate::simd::Simd;

/// The largest quantized weight of an int8 cache: two 7-bit digits.
const LARGEST_WEIGHT: f32 = 16383.0;
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

/// Returns the scale and its inverse, with the largest magnitude mapped to `max_code`.
#[inline(always)]
pub(super) fn scales(largest: f32, max_code: f32) -> (f32, f32) {
    const SMALLEST: f32 = 7.888_609e-31;
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / max_code, max_code / largest) }
}

/// The quantized weights of a query as two digits of a byte each, aligned to cache lines.
#[repr(C, align(64))]
pub(super) struct Digits {
    pub high: [i8; CHUNK],
    pub low: [i8; CHUNK],
    /// The sums of both digits.
    pub sums: [i32; 2],
    pub scale: f32,
}

impl Digits {
    pub(super) const ZERO: Self = Self { high: [0; CHUNK], low: [0; CHUNK], sums: [0; 2], scale: 0.0 };

    /// Multiplies a query's weights by the scales of the values and quantizes them.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(
        &mut self,
        s: S,
        weights: &mut [f32],
        part: ChunkPositions,
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
    ) {
        let ScaledWeights { weights, vectors, largest, sum: _, poison } =
            ScaledWeights::new(s, weights, part, chunk, seen);
        let (scale, inverse) = scales(largest, LARGEST_WEIGHT);
        self.scale = scale + poison;
        let mut sums = [s.splat(0.0); 2];
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

/// A query's weights in a chunk, multiplied by the scales of the values. Weights of masked positions are zero.
pub(super) struct ScaledWeights<'a> {
    pub weights: &'a [[f32; 16]],
    /// The vectors of weights that are seen.
    pub vectors: Range<usize>,
    pub largest: f32,
    pub sum: f32,
    /// Zero, or NaN if a weight or a scale is not finite.
    pub poison: f32,
}

impl<'a> ScaledWeights<'a> {
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        s: S,
        weights: &'a mut [f32],
        part: ChunkPositions,
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
    ) -> Self {
        let range = (part.first - chunk.start, part.end - chunk.start);
        let weights = &mut weights.as_chunks_mut::<16>().0[..CHUNK / 16];
        let [mut largest, mut sum, mut poison] = [s.splat(0.0); 3];
        for block in seen.clone() {
            let scales = Scaled::new(chunk.blocks[block].1).scales;
            for (vector, scale) in (block * (BLOCK / 16)..).zip(scales) {
                let weight = s.mul(s.load(&weights[vector]), s.load_words(scale));
                let weight = within(s, vector, range, weight, s.splat(0.0));
                s.store(weight, &mut weights[vector]);
                largest = s.max(weight, largest);
                sum = s.add(sum, weight);
                poison = s.fma(weight, s.splat(0.0), poison);
            }
        }
        let vectors = seen.start * (BLOCK / 16)..seen.end * (BLOCK / 16);
        Self { weights, vectors, largest: s.largest(largest), sum: s.sum(sum), poison: s.sum(poison) }
    }
}
