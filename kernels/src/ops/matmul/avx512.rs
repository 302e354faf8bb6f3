//! Matmul with AVX-512 VNNI: sixteen output rows per register, `dpbusd` for the integers.

use core::arch::x86_64::*;
use core::ops::Range;

use super::run::tile_shapes;
use super::simd::MatmulSimd;
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::quant::codebooks;
use crate::simd::Avx512;

pub(super) const KERNEL: Kernel<Function> = Kernel::new("matmul-avx512vnni", CpuFeatures::AVX512, avx512);

fn avx512(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the kernel list selects this entry only if the processor has AVX-512.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn shell(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<Avx512, Shapes, RowShapes>(Avx512::inside(), product, rows, panels, out);
}

tile_shapes!(
    /// Tiles of block types, floats and W4i.
    Shapes, 1 => 4, 8 => 1, 6 => 1, 4 => 2, 3 => 2, 2 => 4
);
tile_shapes!(
    /// Tiles of W8r.
    RowShapes, 1 => 4, 8 => 2, 6 => 2, 4 => 4, 3 => 4, 2 => 4
);

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: `self` proves that the processor has the instruction; pointers are valid for what `MatmulSimd` says.
        unsafe { $call }
    };
}

impl MatmulSimd for Avx512 {
    const WIDTH: usize = 16;
    const COMPACT: bool = false;
    /// `dpbusd` takes unsigned weights: signed ones are biased by 128.
    const SIGNED_BIAS: i32 = 128;
    const WIDE: bool = true;
    type B = __m512i;
    type D = __m512i;
    type W = __m512i;
    type F = __m512;

    #[inline(always)]
    fn prefetch(self, from: *const u8) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>(from.cast()))
    }
    #[inline(always)]
    unsafe fn bytes(self, from: *const u8) -> Self::B {
        intrinsic!(_mm512_loadu_si512(from.cast()))
    }
    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::B) -> Self::B {
        intrinsic!(_mm512_and_si512(_mm512_srli_epi16::<SHIFT>(x), _mm512_set1_epi8(MASK as i8)))
    }
    #[inline(always)]
    fn raise<const SHIFT: u32>(self, x: Self::B) -> Self::B {
        intrinsic!(_mm512_slli_epi16::<SHIFT>(x))
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        intrinsic!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn look_up(self, x: Self::B, table: &[i8; 16]) -> Self::B {
        intrinsic!(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), x))
    }
    #[inline(always)]
    fn times(self, x: Self::B, factors: Self::W) -> Self::B {
        intrinsic!({
            // The factors are in the lower half of each lane.
            let both = _mm512_or_si512(factors, _mm512_slli_epi32::<16>(factors));
            let even = _mm512_mullo_epi16(x, both);
            let odd = _mm512_slli_epi16::<8>(_mm512_mullo_epi16(_mm512_srli_epi16::<8>(x), both));
            _mm512_mask_blend_epi8(0x5555_5555_5555_5555, odd, even)
        })
    }
    #[inline(always)]
    unsafe fn store_bytes(self, x: Self::B, to: *mut u8) {
        intrinsic!(_mm512_storeu_si512(to.cast(), x))
    }
    #[inline(always)]
    fn start(self, initial: i32) -> Self::D {
        intrinsic!(_mm512_set1_epi32(initial))
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        intrinsic!(_mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(a)))
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        intrinsic!({
            let raised = _mm512_xor_si512(weights, _mm512_set1_epi8(-128));
            _mm512_dpbusd_epi32(sum, raised, _mm512_set1_epi32(a))
        })
    }
    #[inline(always)]
    fn settle(self, sum: Self::D) -> Self::D {
        sum
    }
    #[inline(always)]
    fn finish(self, sum: Self::D, _initial: i32) -> Self::F {
        intrinsic!(_mm512_cvtepi32_ps(sum))
    }
    #[inline(always)]
    unsafe fn words(self, from: *const u8) -> Self::W {
        intrinsic!(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())))
    }
    #[inline(always)]
    fn factors<const SHIFT: u32>(self, words: Self::W) -> Self::W {
        // 16-bit factors in the lower half of each lane; only the low four bits of an index are used.
        const TABLE: [u32; 16] = {
            let mut table = [0; 16];
            let mut i = 0;
            while i < 16 {
                table[i] = codebooks::W4I_FACTORS[i] as u16 as u32;
                i += 1;
            }
            table
        };
        intrinsic!({
            let table = _mm512_loadu_si512(TABLE.as_ptr().cast());
            _mm512_permutexvar_epi32(_mm512_srli_epi32::<SHIFT>(words), table)
        })
    }
    #[inline(always)]
    fn weigh(self, total: Self::D, dot: Self::D, factors: Self::W) -> Self::D {
        // The upper half of every factor's lane is zero, so the upper half of the dot product is ignored.
        intrinsic!(_mm512_dpwssd_epi32(total, dot, factors))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn negate(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_xor_ps(a, _mm512_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    unsafe fn floats(self, from: *const f32) -> Self::F {
        intrinsic!(_mm512_loadu_ps(from))
    }
    #[inline(always)]
    unsafe fn store(self, x: Self::F, to: *mut f32) {
        intrinsic!(_mm512_storeu_ps(to, x))
    }
    #[inline(always)]
    unsafe fn halves(self, from: *const u8) -> Self::F {
        intrinsic!(_mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(from.cast())))
    }
    #[inline(always)]
    unsafe fn brains(self, from: *const u8) -> Self::F {
        intrinsic!({
            let unpacked = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(unpacked))
        })
    }
    #[inline(always)]
    unsafe fn signed(self, from: *const u8) -> Self::F {
        intrinsic!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))))
    }
    #[inline(always)]
    unsafe fn unsigned<const SHIFT: u32, const MASK: u8>(self, from: *const u8) -> Self::F {
        intrinsic!({
            let unpacked = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let bits = _mm512_and_si512(_mm512_srli_epi32::<SHIFT>(unpacked), _mm512_set1_epi32(MASK as i32));
            _mm512_cvtepi32_ps(bits)
        })
    }
    #[inline(always)]
    unsafe fn half_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        intrinsic!({
            let pairs = _mm512_loadu_si512(from.cast());
            let low = _mm512_cvtepi32_epi16(pairs);
            let high = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(pairs));
            (_mm512_cvtph_ps(low), _mm512_cvtph_ps(high))
        })
    }
    #[inline(always)]
    unsafe fn brain_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        intrinsic!({
            let pairs = _mm512_loadu_si512(from.cast());
            let high = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(high))
        })
    }
}
