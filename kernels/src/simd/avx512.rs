//! Sixteen lanes in one AVX-512 register.

use core::arch::x86_64::*;

use super::avx2::largest_of_four;
use super::{IntegerDot, IntegersOf, LANES, Simd, outline_with};

/// A token that proves that the processor has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Creates the token inside a function that is compiled for AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(crate) fn inside() -> Self {
        Self(())
    }

    /// Converts integers to floats.
    #[inline(always)]
    pub(crate) fn floats(self, x: &[i32; LANES]) -> __m512 {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_cvtepi32_ps(_mm512_loadu_si512(x.as_ptr().cast())) }
    }
}

/// Wraps one intrinsic call.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: `self` proves that the processor has the instruction; pointers come from references to
        // arrays of the size that is read or written.
        unsafe { $call }
    };
}

outline_with!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c");

impl Simd for Avx512 {
    const REGISTERS: usize = 32;
    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        intrinsic!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        intrinsic!(_mm512_storeu_ps(out.as_mut_ptr(), x))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        intrinsic!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        intrinsic!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x))
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        intrinsic!(_mm512_cvtps_epi32(x))
    }
    #[inline(always)]
    fn float(self, x: Self::I) -> Self::F {
        intrinsic!(_mm512_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn power_of_two(self, x: Self::I) -> Self::F {
        intrinsic!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(x, _mm512_set1_epi32(127)))))
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::I, out: &mut [i8; LANES]) {
        intrinsic!(_mm_storeu_si128(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)))
    }
    #[inline(always)]
    fn butterfly<const APART: usize>(self, x: Self::F) -> Self::F {
        /// 1 in lanes that are added to the other lane, −1 in lanes that are subtracted from it.
        const fn signs<const APART: usize>() -> [f32; LANES] {
            let mut signs = [1.0; LANES];
            let mut lane = 0;
            while lane < LANES {
                if lane & APART != 0 {
                    signs[lane] = -1.0;
                }
                lane += 1;
            }
            signs
        }
        let signs = self.load(const { &signs::<APART>() });
        intrinsic!({
            // Shuffle controls for quarters, or for the lanes of a quarter: 0b01_00_11_10 swaps halves,
            // 0b10_11_00_01 swaps neighbors.
            let y = match const { APART } {
                1 => _mm512_permute_ps::<0b10_11_00_01>(x),
                2 => _mm512_permute_ps::<0b01_00_11_10>(x),
                4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x),
                _ => _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x),
            };
            // Products with ±1 are exact, so the result is rounded once. A separate sum and difference would
            // take more instructions.
            _mm512_fmadd_ps(x, signs, y)
        })
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        intrinsic!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn store_shorts(self, x: Self::I, out: &mut [i16; LANES]) {
        intrinsic!(_mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(x)))
    }
    #[inline(always)]
    fn load_halves(self, x: &[u32; LANES / 2]) -> Self::F {
        // Without `_MM_FROUND_NO_EXC`, which requires a register operand and takes two more ports.
        intrinsic!(_mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn prefetch<T>(self, number: &T) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>((&raw const *number).cast()));
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        intrinsic!({
            let eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        intrinsic!({
            let eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest_of_each(self, x: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = x;
        intrinsic!(largest_of_four(
            _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)),
            _mm256_max_ps(_mm512_castps512_ps256(b), _mm512_extractf32x8_ps::<1>(b)),
            _mm256_max_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps::<1>(c)),
            _mm256_max_ps(_mm512_castps512_ps256(d), _mm512_extractf32x8_ps::<1>(d))
        ))
    }
    #[inline(always)]
    fn store_bytes_of_each(self, x: [Self::I; 4], out: &mut [[i8; LANES]; 4]) -> [i32; 4] {
        intrinsic!({
            let [a, b, c, d] = x;
            // Each quarter has four bytes of each vector.
            let quarters = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_permutexvar_epi32(order, quarters));
            let sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), quarters);
            let sums = _mm256_add_epi32(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64::<1>(sums));
            let sums = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            let mut four = [0; 4];
            _mm_storeu_si128(four.as_mut_ptr().cast(), sums);
            four
        })
    }
}

impl IntegerDot for Avx512 {
    type Vectors = Self;
    const DOT_BIAS: i32 = 128;
    type Sums = [__m512i; 2];
    type Quads = [__m512i; 2];
    const SUMS: usize = 12;

    #[inline(always)]
    fn vectors(self) -> Self {
        self
    }
    #[inline(always)]
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self> {
        intrinsic!({
            let raised = _mm512_xor_si512(_mm512_loadu_si512(lanes.as_ptr().cast()), _mm512_set1_epi8(-128));
            _mm512_dpbusd_epi32(sum, raised, _mm512_set1_epi32(a))
        })
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        intrinsic!([_mm512_setzero_si512(); 2])
    }
    #[inline(always)]
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads {
        intrinsic!({
            let units = _mm512_set1_epi16(0x8001_u16 as i16);
            let high = _mm512_loadu_si512(high.as_ptr().cast());
            let low = _mm512_loadu_si512(low.as_ptr().cast());
            // Products of unsigned 1 and 128 with signed low and high bytes.
            [
                _mm512_maddubs_epi16(units, _mm512_unpacklo_epi8(low, high)),
                _mm512_maddubs_epi16(units, _mm512_unpackhi_epi8(low, high)),
            ]
        })
    }
    #[inline(always)]
    fn add_products(self, sums: Self::Sums, quads: Self::Quads, factors: u64) -> Self::Sums {
        intrinsic!({
            let factors = _mm512_set1_epi64(factors as i64);
            [_mm512_dpwssd_epi32(sums[0], quads[0], factors), _mm512_dpwssd_epi32(sums[1], quads[1], factors)]
        })
    }
    #[inline(always)]
    fn totals(self, sums: Self::Sums) -> IntegersOf<Self> {
        intrinsic!({
            let (a, b) = (_mm512_castsi512_ps(sums[0]), _mm512_castsi512_ps(sums[1]));
            let (even, odd) = (_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
            _mm512_add_epi32(_mm512_castps_si512(even), _mm512_castps_si512(odd))
        })
    }
}
