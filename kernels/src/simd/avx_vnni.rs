//! AVX2 with the int8 dot products of AVX-VNNI.

use core::arch::x86_64::*;

use super::{Avx2, IntegerDot, IntegersOf, LANES, outline_with};

/// A token that proves that the processor has AVX2, FMA, F16C and AVX-VNNI.
#[derive(Clone, Copy)]
pub(crate) struct AvxVnni(Avx2);

impl AvxVnni {
    /// Creates the token inside a function that is compiled for AVX-VNNI.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    pub(crate) fn inside() -> Self {
        Self(Avx2::inside())
    }
}

outline_with!(AvxVnni, "avx2,fma,f16c,avxvnni");

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: `self` proves that the processor has the instruction; pointers come from references to sixteen lanes.
        unsafe { $call }
    };
}

impl IntegerDot for AvxVnni {
    type Vectors = Avx2;
    /// `dpbusd` takes unsigned bytes: signed ones are biased by 128.
    const DOT_BIAS: i32 = 128;
    type Sums = [__m256i; 4];
    type Quads = [__m256i; 4];
    const SUMS: usize = 2;

    #[inline(always)]
    fn vectors(self) -> Avx2 {
        self.0
    }
    #[inline(always)]
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self> {
        intrinsic!({
            let (a, mut sum) = (_mm256_set1_epi32(a), sum);
            for (half, sum) in sum.iter_mut().enumerate() {
                let lanes = _mm256_loadu_si256(lanes.as_ptr().add(8 * half).cast());
                let raised = _mm256_xor_si256(lanes, _mm256_set1_epi8(-128));
                *sum = _mm256_dpbusd_avx_epi32(*sum, raised, a);
            }
            sum
        })
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        self.0.zero_sums()
    }
    #[inline(always)]
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads {
        self.0.quads(high, low)
    }
    #[inline(always)]
    fn add_products(self, sums: Self::Sums, quads: Self::Quads, factors: u64) -> Self::Sums {
        intrinsic!({
            let (factors, mut sums) = (_mm256_set1_epi64x(factors as i64), sums);
            for (sum, quads) in sums.iter_mut().zip(quads) {
                *sum = _mm256_dpwssd_avx_epi32(*sum, quads, factors);
            }
            sums
        })
    }
    #[inline(always)]
    fn totals(self, sums: Self::Sums) -> IntegersOf<Self> {
        self.0.totals(sums)
    }
}
