//! Attention over int8 keys and values with AMX: sixteen queries times sixteen keys, or columns, at once.
//!
//! Small groups of queries are faster with vectors; f16 and f32 caches always use vectors.

use core::ops::Range;

use super::flash::{AttentionProducts, AttentionScratch, attend_with};
use super::int8::{Digits, QuantizedQueries, Scaled, WORDS};
use super::kv_chunk::KvChunk;
use super::online_softmax::ChunkPositions;
use super::{
    AttentionArguments, BLOCK, CHUNK, CacheType, Function, HeadCache, KeySpan, PANEL, QUERIES, Query,
    TILED_GROUP, VECTORS, padded,
};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::ops::amx_tiles::{ROWS, Shapes, Tiles};
use crate::simd::{Avx512, Simd};

/// Minimum number of queries; fewer are faster with vectors.
const MIN_QUERIES: usize = 8;

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("attention-amx", CpuFeatures::AVX512.with(CpuFeatures::AMX), amx);

fn amx(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    if arguments.cache != CacheType::Int8 || queries.len() < MIN_QUERIES {
        return (VECTORS[0].run)(arguments, queries, cache, span, scratch, out);
    }
    // SAFETY: the kernel list selects this entry only if the processor has AVX-512 and AMX.
    unsafe { shell(arguments, queries, cache, span, scratch, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn shell(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let s = Avx512::inside();
    let queries = &queries[..queries.len().min(QUERIES)];
    let columns = padded(arguments.head_size);
    let (scratch, whole) = AttentionScratch::new(scratch, columns, TILED_GROUP);
    let whole = QuantizedQueries::new(s, queries, columns, whole);
    // Columns per tile, a divisor of `columns`, so that no tile extends beyond a query or a panel.
    let step = [64, 32, 16].into_iter().find(|step| columns.is_multiple_of(*step)).unwrap_or(16);
    let shapes = Shapes::NONE
        .with(SUMS, ROWS, 64)
        .with(MORE_SUMS, ROWS, 64)
        .with(QUERY, ROWS, step)
        .with(KEYS, step / 4, 64)
        .with(MORE_KEYS, step / 4, 64)
        .with(HIGH, ROWS, BLOCK)
        .with(LOW, ROWS, BLOCK)
        .with(VALUES, WORDS, 64);
    // SAFETY: the processor has AMX.
    let tiles = unsafe { Tiles::with_shapes(&shapes) };
    let digits = [const { Digits::ZERO }; ROWS];
    let products = InTiles { whole, step, tiles, digits, sums: AllSums([[[0; 16]; ROWS]; 2]) };
    attend_with::<_, _, TILED_GROUP>(s, arguments, queries, products, cache, span, scratch, out);
}

/// Tile register assignments.
const SUMS: u8 = 0;
const MORE_SUMS: u8 = 1;
const QUERY: u8 = 2;
const KEYS: u8 = 3;
const MORE_KEYS: u8 = 4;
const HIGH: u8 = 5;
const LOW: u8 = 6;
const VALUES: u8 = 7;

/// Accumulators of two tiles, aligned to cache lines.
#[repr(C, align(64))]
struct AllSums([[[i32; 16]; ROWS]; 2]);

/// Products with AMX tiles. Rows of a group with fewer than sixteen queries are computed and ignored.
struct InTiles<'a> {
    whole: QuantizedQueries<'a>,
    /// Columns of a query per tile.
    step: usize,
    tiles: Tiles,
    digits: [Digits; ROWS],
    sums: AllSums,
}

impl InTiles<'_> {
    /// Stores both accumulator tiles to memory.
    #[inline(always)]
    fn keep(&mut self) {
        let [first, second] = &mut self.sums.0;
        // SAFETY: an accumulator tile has sixteen rows of sixteen `i32`.
        unsafe {
            self.tiles.store_lines::<SUMS>(first.as_mut_ptr().cast());
            self.tiles.store_lines::<MORE_SUMS>(second.as_mut_ptr().cast());
        }
    }
}

impl AttentionProducts<Avx512> for InTiles<'_> {
    #[inline(always)]
    fn score(
        &mut self,
        s: Avx512,
        (_, group): (&[Query<'_>], Range<usize>),
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        scores: &mut [f32],
    ) {
        let count = self.whole.count;
        let rows = &self.whole.words[group.start * count..][..ROWS * count];
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
                self.keep();
                let scales = [s.load_words(&keys.scales[first]), s.load_words(&keys.scales[first + 1])];
                for (q, worth) in self.whole.worth[group.clone()].iter().enumerate() {
                    let to = scores[q * CHUNK + block * BLOCK + first * PANEL..].as_chunks_mut().0;
                    for ((sums, scale), to) in self.sums.0.iter().zip(scales).zip(to) {
                        s.store(s.mul(s.floats(&sums[q]), s.mul(scale, s.splat(worth.0))), to);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn mix(
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
        let columns = 4 * self.whole.count;
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
            self.keep();
            let [high, low] = &self.sums.0;
            for (q, digits) in self.digits[..parts.len()].iter().enumerate() {
                let sum = s.fma(s.floats(&high[q]), s.splat(128.0), s.floats(&low[q]));
                let to = &mut sums[q * columns + vector * 16..][..16];
                s.store_part(s.mul(sum, s.splat(digits.worth)), to);
            }
        }
    }
}
