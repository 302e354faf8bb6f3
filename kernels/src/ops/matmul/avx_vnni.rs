//! Matmul with AVX-VNNI: as with AVX2, but with `dpbusd` for the integers.

use core::arch::x86_64::*;
use core::ops::Range;

use super::avx2::Integers;
use super::run::tile_shapes;
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::AvxVnni;

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("matmul-avxvnni", CpuFeatures::AVX2.with(CpuFeatures::AVXVNNI), avx_vnni);

fn avx_vnni(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the kernel list selects this entry only if the processor has AVX2 and AVX-VNNI.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn shell(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<AvxVnni, Shapes, Shapes>(AvxVnni::inside(), product, rows, panels, out);
}

tile_shapes!(
    /// Tiles of all panel types.
    Shapes, 1 => 2, 4 => 2, 3 => 2, 2 => 2
);

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: `self` proves that the processor has the instruction.
        unsafe { $call }
    };
}

impl Integers for AvxVnni {
    /// `dpbusd` takes unsigned weights: signed ones are biased by 128.
    const BIAS: i32 = 128;
    const WIDE: bool = true;
    /// One instruction replaces three, and its memory operand is broadcast for free.
    const SPREAD: bool = false;
    type Dot = __m256i;

    #[inline(always)]
    fn start(self, initial: __m256i) -> Self::Dot {
        initial
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::Dot, weights: __m256i, a: __m256i) -> Self::Dot {
        intrinsic!(_mm256_dpbusd_avx_epi32(sum, weights, a))
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::Dot, weights: __m256i, a: __m256i) -> Self::Dot {
        intrinsic!({
            let raised = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
            _mm256_dpbusd_avx_epi32(sum, raised, a)
        })
    }
    #[inline(always)]
    fn settle(self, sum: Self::Dot) -> Self::Dot {
        sum
    }
    #[inline(always)]
    fn finish(self, sum: Self::Dot, _initial: __m256i) -> __m256 {
        intrinsic!(_mm256_cvtepi32_ps(sum))
    }
    #[inline(always)]
    fn short(initial: i32) -> i32 {
        initial
    }
    #[inline(always)]
    fn start_short(self, short: __m256i) -> Self::Dot {
        short
    }
    #[inline(always)]
    fn weigh(self, total: Self::Dot, dot: Self::Dot, factors: __m256i) -> Self::Dot {
        intrinsic!({
            // The dot product fits into the lower half of its lane; the upper half is sign extension and must
            // be masked out.
            let lower = _mm256_and_si256(factors, _mm256_set1_epi32(0xffff));
            _mm256_dpwssd_avx_epi32(total, dot, lower)
        })
    }
}
