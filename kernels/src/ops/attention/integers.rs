//! Attention over integer caches with the byte dot products of processors that have them beside their vectors. Float
//! caches use the kernel of the vectors.

use core::ops::Range;

use super::flash::{AttentionProducts, AttentionScratch, PreparedQueries, attend_with, with_vectors};
use super::kv_chunk::KvChunk;
use super::online_softmax::ChunkPositions;
use super::{
    AttentionArguments, CacheType, Function, GROUP, HeadCache, KeySpan, QUERIES, Query, VECTORS, int8, int14,
    padded,
};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::{IntegerDot, Simd};

/// Products with byte dot products, `V` vectors at a time.
struct Integers<'a, D, const V: usize> {
    d: D,
    is_split: bool,
    columns: usize,
    prepared: PreparedQueries<'a>,
}

impl<D: IntegerDot, const V: usize> AttentionProducts<D::Vectors> for Integers<'_, D, V> {
    #[inline(always)]
    fn score(
        &mut self,
        _: D::Vectors,
        (_, group): (&[Query<'_>], Range<usize>),
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        scores: &mut [f32],
    ) {
        match self.is_split {
            true => int14::score::<D, V>(self.d, &self.prepared.rotated, group, chunk, seen, scores),
            false => int8::score::<D, V>(self.d, &self.prepared.quantized, group, chunk, seen, scores),
        }
    }

    #[inline(always)]
    fn mix(
        &mut self,
        _: D::Vectors,
        parts: &[ChunkPositions],
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        weights: &mut [f32],
        sums: &mut [f32],
    ) {
        match self.is_split {
            true => int14::mix::<D, V>(self.d, self.columns, parts, chunk, seen, weights, sums),
            false => int8::mix::<D, V>(self.d, self.columns, parts, chunk, seen, weights, sums),
        }
    }
}

#[inline(always)]
fn attend<D: IntegerDot>(
    d: D,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let queries = &queries[..queries.len().min(QUERIES)];
    let columns = padded(arguments.head_size);
    let (scratch, words) = AttentionScratch::new(scratch, columns, GROUP);
    let prepared = PreparedQueries::new(d, arguments.cache, queries, columns, words);
    let is_split = arguments.cache == CacheType::Int14;
    with_vectors!(D::Vectors, |V| {
        let products = Integers::<_, V> { d, is_split, columns, prepared };
        attend_with::<_, _, GROUP>(d.vectors(), arguments, queries, products, cache, span, scratch, out);
    });
}

/// Defines a kernel with the byte dot products of a token; float caches use `$vectors`.
macro_rules! kernel {
    ($name:literal, $cpu:expr, $features:literal, $token:ty, $vectors:expr) => {
        pub(super) const KERNEL: Kernel<Function> = Kernel::new($name, $cpu, run);

        fn run(
            arguments: &AttentionArguments,
            queries: &[Query<'_>],
            cache: &dyn HeadCache,
            span: KeySpan,
            scratch: &mut [f32],
            out: &mut [&mut [f32]],
        ) {
            if !arguments.cache.is_integer() {
                return ($vectors.run)(arguments, queries, cache, span, scratch, out);
            }
            // SAFETY: the kernel list selects this entry only if the processor has the features.
            unsafe { shell(arguments, queries, cache, span, scratch, out) }
        }

        #[target_feature(enable = $features)]
        fn shell(
            arguments: &AttentionArguments,
            queries: &[Query<'_>],
            cache: &dyn HeadCache,
            span: KeySpan,
            scratch: &mut [f32],
            out: &mut [&mut [f32]],
        ) {
            attend(<$token>::inside(), arguments, queries, cache, span, scratch, out);
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernel!(
    "attention-avxvnni",
    CpuFeatures::AVX2.with(CpuFeatures::AVXVNNI),
    "avx2,fma,f16c,avxvnni",
    crate::simd::AvxVnni,
    VECTORS[1]
);
