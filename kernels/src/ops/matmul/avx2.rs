//! Matmul with AVX2: eight output rows per register, `maddubs` for the integers.

use core::arch::asm;
use core::arch::x86_64::*;
use core::ops::Range;

use super::broadcast::Blocks;
use super::formats::{QuantPlane, ScaleScheme};
use super::row_types::BookRow;
use super::run::{MatmulShare, tile_shapes};
use super::simd::MatmulSimd;
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::quant::codebooks;
use crate::simd::{Avx2, InstructionSet};

pub(super) const KERNEL: Kernel<Function> = Kernel::new("matmul-avx2", CpuFeatures::AVX2, avx2);

fn avx2(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the kernel list selects this entry only if the processor has AVX2.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn shell(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<Avx2, Shapes, RowShapes>(Avx2::inside(), product, rows, panels, out);
}

tile_shapes!(
    /// Tiles of block types, floats and W4i.
    Shapes, 1 => 2, 2 => 2
);
tile_shapes!(
    /// Tiles of W8r.
    RowShapes, 1 => 2, 4 => 2, 2 => 2
);

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: `self` proves that the processor has the instruction; pointers are valid for what `MatmulSimd` says.
        unsafe { $call }
    };
}

/// The integer instructions, in which AVX2 and AVX-VNNI differ. See [`MatmulSimd`] for the contract of each
/// method.
pub(super) trait Integers: InstructionSet {
    const BIAS: i32;
    const WIDE: bool;
    /// Whether several rows are faster if they are first broadcast to vectors.
    const SPREAD: bool;
    type Dot: Copy;

    fn start(self, initial: __m256i) -> Self::Dot;
    fn dot_small(self, sum: Self::Dot, weights: __m256i, a: __m256i) -> Self::Dot;
    fn dot_signed(self, sum: Self::Dot, weights: __m256i, a: __m256i) -> Self::Dot;
    fn settle(self, sum: Self::Dot) -> Self::Dot;
    fn finish(self, sum: Self::Dot, initial: __m256i) -> __m256;

    /// Returns the initial value of a dot product for [`Integers::weigh`], given `initial`.
    fn short(initial: i32) -> i32;
    fn start_short(self, short: __m256i) -> Self::Dot;
    /// `factors` has the factor in both halves of each lane.
    fn weigh(self, total: Self::Dot, dot: Self::Dot, factors: __m256i) -> Self::Dot;
}

/// 16-bit pair sums that are not widened yet, and 32-bit sums.
#[derive(Clone, Copy)]
pub(super) struct PairSums {
    pairs: __m256i,
    sums: __m256i,
}

/// Returns the vector, opaque to the optimizer, which would otherwise reassociate the sums of several steps
/// and run out of registers.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(vector: __m256i) -> __m256i {
    let mut vector = vector;
    // SAFETY: the assembly contains no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) vector, options(nomem, nostack, preserves_flags)) };
    vector
}

impl Integers for Avx2 {
    const BIAS: i32 = 0;
    /// Products of signed bytes take twice as many instructions as those of small unsigned values.
    const WIDE: bool = false;
    const SPREAD: bool = true;
    type Dot = PairSums;

    #[inline(always)]
    fn start(self, _initial: __m256i) -> Self::Dot {
        intrinsic!(PairSums { pairs: _mm256_setzero_si256(), sums: _mm256_setzero_si256() })
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::Dot, weights: __m256i, a: __m256i) -> Self::Dot {
        intrinsic!({
            let pairs = _mm256_add_epi16(sum.pairs, _mm256_maddubs_epi16(weights, a));
            PairSums { pairs: in_order(pairs), sums: sum.sums }
        })
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::Dot, weights: __m256i, a: __m256i) -> Self::Dot {
        intrinsic!({
            // The sign is moved from the weight to the activation; 2 · 128 · 127 fits into 16 bits.
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(a, weights));
            let widened = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            PairSums { pairs: sum.pairs, sums: in_order(_mm256_add_epi32(sum.sums, widened)) }
        })
    }
    #[inline(always)]
    fn settle(self, sum: Self::Dot) -> Self::Dot {
        intrinsic!({
            let widened = _mm256_madd_epi16(sum.pairs, _mm256_set1_epi16(1));
            PairSums { pairs: _mm256_setzero_si256(), sums: _mm256_add_epi32(sum.sums, widened) }
        })
    }
    #[inline(always)]
    fn finish(self, sum: Self::Dot, initial: __m256i) -> __m256 {
        intrinsic!(_mm256_cvtepi32_ps(_mm256_add_epi32(sum.sums, initial)))
    }
    /// The lower pair sum starts with it and may wrap, since the final sum fits; the upper one starts at
    /// zero.
    #[inline(always)]
    fn short(initial: i32) -> i32 {
        initial & 0xffff
    }
    #[inline(always)]
    fn start_short(self, short: __m256i) -> Self::Dot {
        intrinsic!(PairSums { pairs: short, sums: _mm256_setzero_si256() })
    }
    #[inline(always)]
    fn weigh(self, total: Self::Dot, dot: Self::Dot, factors: __m256i) -> Self::Dot {
        intrinsic!({
            let products = _mm256_madd_epi16(dot.pairs, factors);
            PairSums { pairs: total.pairs, sums: _mm256_add_epi32(total.sums, products) }
        })
    }
}

impl<N: Integers> MatmulSimd for N {
    const WIDTH: usize = 8;
    const COMPACT: bool = false;
    const SIGNED_BIAS: i32 = N::BIAS;
    const WIDE: bool = N::WIDE;
    type B = __m256i;
    type D = N::Dot;
    type W = __m256i;
    type F = __m256;

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>(from.cast()))
    }
    #[inline(always)]
    unsafe fn bytes(self, from: *const u8) -> Self::B {
        intrinsic!(_mm256_loadu_si256(from.cast()))
    }
    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::B) -> Self::B {
        intrinsic!(_mm256_and_si256(
            _mm256_srl_epi16(x, _mm_cvtsi32_si128(SHIFT as i32)),
            _mm256_set1_epi8(MASK as i8)
        ))
    }
    #[inline(always)]
    fn raise<const SHIFT: u32>(self, x: Self::B) -> Self::B {
        intrinsic!(_mm256_sll_epi16(x, _mm_cvtsi32_si128(SHIFT as i32)))
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        intrinsic!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn look_up(self, x: Self::B, table: &[i8; 16]) -> Self::B {
        intrinsic!(_mm256_shuffle_epi8(
            _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())),
            x
        ))
    }
    #[inline(always)]
    fn times(self, x: Self::B, factors: Self::W) -> Self::B {
        intrinsic!({
            let even = _mm256_mullo_epi16(x, factors);
            let odd = _mm256_slli_epi16::<8>(_mm256_mullo_epi16(_mm256_srli_epi16::<8>(x), factors));
            _mm256_blendv_epi8(odd, even, _mm256_set1_epi16(0xff))
        })
    }
    #[inline(always)]
    unsafe fn store_bytes(self, x: Self::B, to: *mut u8) {
        intrinsic!(_mm256_storeu_si256(to.cast(), x))
    }
    #[inline(always)]
    fn start(self, initial: i32) -> Self::D {
        Integers::start(self, intrinsic!(_mm256_set1_epi32(initial)))
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        Integers::dot_small(self, sum, weights, intrinsic!(_mm256_set1_epi32(a)))
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        Integers::dot_signed(self, sum, weights, intrinsic!(_mm256_set1_epi32(a)))
    }
    #[inline(always)]
    fn settle(self, sum: Self::D) -> Self::D {
        Integers::settle(self, sum)
    }
    #[inline(always)]
    fn finish(self, sum: Self::D, initial: i32) -> Self::F {
        Integers::finish(self, sum, intrinsic!(_mm256_set1_epi32(initial)))
    }
    #[inline(always)]
    fn start_short(self, initial: i32) -> Self::D {
        Integers::start_short(self, intrinsic!(_mm256_set1_epi32(N::short(initial))))
    }
    #[inline(always)]
    fn weigh(self, total: Self::D, dot: Self::D, factors: Self::W) -> Self::D {
        Integers::weigh(self, total, dot, factors)
    }
    #[inline(always)]
    unsafe fn words(self, from: *const u8) -> Self::W {
        intrinsic!(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    fn factors<const SHIFT: u32>(self, words: Self::W) -> Self::W {
        intrinsic!({
            let codes = _mm256_and_si256(
                _mm256_srl_epi32(words, _mm_cvtsi32_si128(SHIFT as i32)),
                _mm256_set1_epi32(15),
            );
            // The upper bytes of both halves of a lane look up the factor; the lower bytes yield zero.
            let upper = _mm256_or_si256(_mm256_slli_epi32::<8>(codes), _mm256_slli_epi32::<24>(codes));
            let index = _mm256_or_si256(upper, _mm256_set1_epi16(0x80));
            let raised = self.look_up(index, &codebooks::W4I_FACTORS);
            _mm256_srai_epi16::<8>(raised)
        })
    }
    #[inline(always)]
    fn some_rows<P: QuantPlane, S: ScaleScheme>(self, part: &MatmulShare<'_>) -> usize {
        if N::SPREAD && !P::SIGNED { part.broadcast::<N, Blocks<P, S>>(self) } else { part.rows.start }
    }
    #[inline(always)]
    fn some_book_rows(self, part: &MatmulShare<'_>) -> usize {
        if N::SPREAD { part.broadcast::<N, BookRow>(self) } else { part.rows.start }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn negate(self, a: Self::F) -> Self::F {
        intrinsic!(_mm256_xor_ps(a, _mm256_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    unsafe fn floats(self, from: *const f32) -> Self::F {
        intrinsic!(_mm256_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, x: Self::F, to: *mut f32) {
        intrinsic!(_mm256_storeu_ps(to, x))
    }
    #[inline(always)]
    unsafe fn halves(self, from: *const u8) -> Self::F {
        intrinsic!(_mm256_cvtph_ps(_mm_loadu_si128(from.cast())))
    }
    #[inline(always)]
    unsafe fn brains(self, from: *const u8) -> Self::F {
        intrinsic!({
            let unpacked = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(unpacked))
        })
    }
    #[inline(always)]
    unsafe fn signed(self, from: *const u8) -> Self::F {
        intrinsic!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))))
    }
    #[inline(always)]
    unsafe fn unsigned<const SHIFT: u32, const MASK: u8>(self, from: *const u8) -> Self::F {
        intrinsic!({
            let unpacked = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
            let shifted = _mm256_srl_epi32(unpacked, _mm_cvtsi32_si128(SHIFT as i32));
            _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(MASK as i32)))
        })
    }
    #[inline(always)]
    unsafe fn half_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        intrinsic!({
            let pairs = _mm256_loadu_si256(from.cast());
            let low = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
            let high = _mm256_srli_epi32::<16>(pairs);
            // Packing works within 128-bit halves; 0b1101_1000 restores the order of the quarters.
            let packed = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packus_epi32(low, high));
            (
                _mm256_cvtph_ps(_mm256_castsi256_si128(packed)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(packed)),
            )
        })
    }
    #[inline(always)]
    unsafe fn brain_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        intrinsic!({
            let pairs = _mm256_loadu_si256(from.cast());
            let high = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            (_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(high))
        })
    }
}
