//! Attention over int8 and int14 keys and values with AMX: sixteen queries times sixteen keys, or columns, at once.
//!
//! Small groups of queries are faster with vectors; f16 and f32 caches always use vectors.

mod int14;
mod int8;

use core::ops::Range;

use super::digits::{Digits, WORDS};
use super::flash::{AttentionProducts, AttentionScratch, attend_with};
use super::int8::QuantizedQueries;
use super::kv_chunk::KvChunk;
use super::online_softmax::ChunkPositions;
use super::{
    AttentionArguments, BLOCK, CacheType, Function, HeadCache, KeySpan, QUERIES, Query, TILED_GROUP, VECTORS,
    padded,
};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::ops::amx_tiles::{ROWS, Shapes, Tiles};
use crate::simd::Avx512;

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
    if !arguments.cache.is_integer() || queries.len() < MIN_QUERIES {
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
    let (scratch, words) = AttentionScratch::new(scratch, columns, TILED_GROUP);
    let queries_in_tiles = match arguments.cache == CacheType::Int14 {
        true => TileQueries::Int14(int14::RotatedDigits::new(s, queries, columns, words)),
        false => TileQueries::Int8(QuantizedQueries::new(s, queries, columns, words)),
    };
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
    let products = InTiles {
        queries: queries_in_tiles,
        columns,
        step,
        tiles,
        digits,
        sums: AllSums([[[0; 16]; ROWS]; 3]),
    };
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

/// Accumulators of three tiles, aligned to cache lines.
#[repr(C, align(64))]
struct AllSums([[[i32; 16]; ROWS]; 3]);

/// Queries as the cache type needs them.
enum TileQueries<'a> {
    Int8(QuantizedQueries<'a>),
    Int14(int14::RotatedDigits<'a>),
}

/// Products with AMX tiles. Tile rows beyond the group's queries are computed and ignored.
struct InTiles<'a> {
    queries: TileQueries<'a>,
    columns: usize,
    /// Columns of a query per tile.
    step: usize,
    tiles: Tiles,
    digits: [Digits; ROWS],
    sums: AllSums,
}

impl InTiles<'_> {
    /// Stores the first two accumulator tiles to memory.
    #[inline(always)]
    fn store_sums(&mut self) {
        let [first, second, _] = &mut self.sums.0;
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
        match self.queries {
            TileQueries::Int8(_) => self.score_int8(s, group, chunk, seen, scores),
            TileQueries::Int14(_) => self.score_int14(s, group, chunk, seen, scores),
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
        match self.queries {
            TileQueries::Int8(_) => self.mix_int8(s, parts, chunk, seen, weights, sums),
            TileQueries::Int14(_) => self.mix_int14(s, parts, chunk, seen, weights, sums),
        }
    }
}
