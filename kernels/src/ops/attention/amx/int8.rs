//! Products of int8 keys and values.

use core::ops::Range;

use super::super::digits::{Digits, Scaled, WORDS};
use super::super::kv_chunk::KvChunk;
use super::super::online_softmax::ChunkPositions;
use super::super::{BLOCK, CHUNK, PANEL};
use super::{HIGH, InTiles, KEYS, LOW, MORE_KEYS, MORE_SUMS, QUERY, SUMS, TileQueries, VALUES};
use crate::ops::amx_tiles::ROWS;
use crate::simd::{Avx512, Simd};

impl InTiles<'_> {
    /// Computes the dot products with the keys.
    #[inline(always)]
    pub(super) fn score_int8(
        &mut self,
        s: Avx512,
        group: Range<usize>,
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        scores: &mut [f32],
    ) {
        let TileQueries::Int8(queries) = &self.queries else { return };
        let (count, query_scales) = (queries.count, queries.scales);
        let rows = &queries.words[group.start * count..][..ROWS * count];
        for block in seen.clone() {
            let keys = Scaled::new(chunk.keys(block).0);
            for (first, panels) in (0..BLOCK / PANEL).step_by(2).zip(keys.words.chunks_exact(2 * count)) {
                let (panel, next) = panels.split_at(count);
                self.tiles.zero::<SUMS>();
                self.tiles.zero::<MORE_SUMS>();
                for word in (0..count).step_by(self.step / 4) {
                    // SAFETY: sixteen queries and both panels have `count` words each, and a step divides
                    // `count`.
                    unsafe {
                        self.tiles.load::<QUERY>(rows.as_ptr().add(word).cast(), 4 * count);
                        self.tiles.load_lines::<KEYS>(panel.as_ptr().add(word).cast());
                        self.tiles.load_lines::<MORE_KEYS>(next.as_ptr().add(word).cast());
                    }
                    self.tiles.dot::<SUMS, QUERY, KEYS>();
                    self.tiles.dot::<MORE_SUMS, QUERY, MORE_KEYS>();
                }
                self.store_sums();
                let scales = [s.load_words(&keys.scales[first]), s.load_words(&keys.scales[first + 1])];
                for (q, query) in query_scales[group.clone()].iter().enumerate() {
                    let to = scores[q * CHUNK + block * BLOCK + first * PANEL..].as_chunks_mut().0;
                    for ((sums, scale), to) in self.sums.0.iter().zip(scales).zip(to) {
                        s.store(s.mul(s.floats(&sums[q]), s.mul(scale, s.splat(query.scale))), to);
                    }
                }
            }
        }
    }

    /// Computes the weighted sums of the values.
    #[inline(always)]
    pub(super) fn mix_int8(
        &mut self,
        s: Avx512,
        parts: &[ChunkPositions],
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        weights: &mut [f32],
        sums: &mut [f32],
    ) {
        for (q, (digits, part)) in self.digits.iter_mut().zip(parts).enumerate() {
            digits.fill(s, &mut weights[q * CHUNK..], *part, chunk, seen);
        }
        let columns = self.columns;
        for vector in 0..columns / 16 {
            let digits = self.digits.as_ptr();
            self.tiles.zero::<SUMS>();
            self.tiles.zero::<MORE_SUMS>();
            for block in seen.clone() {
                let values = &Scaled::new(chunk.values(block).0).words[vector * WORDS..][..WORDS];
                // SAFETY: there are sixteen rows of digits, each of which has this block, and a block's words
                // of values.
                unsafe {
                    let (high, low) = (&raw const (*digits).high, &raw const (*digits).low);
                    let [high, low] = [high, low].map(|digits| digits.cast::<u8>().add(block * BLOCK));
                    self.tiles.load::<HIGH>(high, size_of::<Digits>());
                    self.tiles.load::<LOW>(low, size_of::<Digits>());
                    self.tiles.load_lines::<VALUES>(values.as_ptr().cast());
                }
                self.tiles.dot::<SUMS, HIGH, VALUES>();
                self.tiles.dot::<MORE_SUMS, LOW, VALUES>();
            }
            self.store_sums();
            let [high, low, _] = &self.sums.0;
            for (q, digits) in self.digits[..parts.len()].iter().enumerate() {
                let sum = s.fma(s.floats(&high[q]), s.splat(128.0), s.floats(&low[q]));
                let to = &mut sums[q * columns + vector * 16..][..16];
                s.store_part(s.mul(sum, s.splat(digits.scale)), to);
            }
        }
    }
}
