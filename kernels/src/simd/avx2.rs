//! Sixteen lanes in two AVX2 registers.

use core::arch::x86_64::*;

use super::{IntegerDot, IntegersOf, LANES, Simd, outline_with};

/// A token that proves that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Creates the token inside a function that is compiled for AVX2.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) fn inside() -> Self {
        Self(())
    }
}

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: `self` proves that the processor has the instruction; pointers come from references to
        // arrays of the size that is read or written.
        unsafe { $call }
    };
}

/// Applies the same intrinsic to both registers.
macro_rules! pair {
    ($intrinsic:ident($($operand:ident),*)) => {
        intrinsic!([$intrinsic($($operand[0]),*), $intrinsic($($operand[1]),*)])
    };
}

outline_with!(Avx2, "avx2,fma,f16c");

impl Simd for Avx2 {
    const REGISTERS: usize = 8;
    type F = [__m256; 2];
    type I = [__m256i; 2];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        intrinsic!([_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        intrinsic!({
            _mm256_storeu_ps(out.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), x[1]);
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        pair!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        pair!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        pair!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        pair!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        pair!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        pair!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        pair!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        intrinsic!({
            let sign = _mm256_set1_ps(-0.0);
            [_mm256_andnot_ps(sign, a[0]), _mm256_andnot_ps(sign, a[1])]
        })
    }
    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        intrinsic!([
            _mm256_blendv_ps(y[0], x[0], _mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0])),
            _mm256_blendv_ps(y[1], x[1], _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1])),
        ])
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        pair!(_mm256_cvtps_epi32(x))
    }
    #[inline(always)]
    fn float(self, x: Self::I) -> Self::F {
        pair!(_mm256_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn power_of_two(self, x: Self::I) -> Self::F {
        x.map(|x| {
            intrinsic!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
                x,
                _mm256_set1_epi32(127)
            ))))
        })
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::I, out: &mut [i8; LANES]) {
        let mut lanes = [0_i32; LANES];
        intrinsic!({
            _mm256_storeu_si256(lanes.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(lanes.as_mut_ptr().add(8).cast(), x[1]);
        });
        *out = lanes.map(|lane| lane as i8);
    }
    #[inline(always)]
    fn butterfly<const APART: usize>(self, x: Self::F) -> Self::F {
        if APART == 8 {
            return [intrinsic!(_mm256_add_ps(x[0], x[1])), intrinsic!(_mm256_sub_ps(x[0], x[1]))];
        }
        macro_rules! half {
            ($x:expr) => {
                intrinsic!(match const { APART } {
                    1 => {
                        let y = _mm256_permute_ps::<0b10_11_00_01>($x);
                        _mm256_blend_ps::<0b1010_1010>(_mm256_add_ps($x, y), _mm256_sub_ps(y, $x))
                    }
                    2 => {
                        let y = _mm256_permute_ps::<0b01_00_11_10>($x);
                        _mm256_blend_ps::<0b1100_1100>(_mm256_add_ps($x, y), _mm256_sub_ps(y, $x))
                    }
                    _ => {
                        let y = _mm256_permute2f128_ps::<1>($x, $x);
                        _mm256_blend_ps::<0b1111_0000>(_mm256_add_ps($x, y), _mm256_sub_ps(y, $x))
                    }
                })
            };
        }
        [half!(x[0]), half!(x[1])]
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        intrinsic!([_mm256_set1_epi32(x); 2])
    }
    #[inline(always)]
    fn store_shorts(self, x: Self::I, out: &mut [i16; LANES]) {
        intrinsic!({
            // Within each half, the lower lanes are of the first register.
            let halves = _mm256_packs_epi32(x[0], x[1]);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(halves));
        })
    }
    #[inline(always)]
    fn load_halves(self, x: &[u32; LANES / 2]) -> Self::F {
        intrinsic!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(4).cast())),
        ])
    }
    #[inline(always)]
    fn prefetch<T>(self, number: &T) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>((&raw const *number).cast()));
    }
    #[inline(always)]
    fn sum(self, x: Self::F) -> f32 {
        intrinsic!({
            let eight = _mm256_add_ps(x[0], x[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest(self, x: Self::F) -> f32 {
        intrinsic!({
            let eight = _mm256_max_ps(x[0], x[1]);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn largest_of_each(self, x: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = x;
        intrinsic!(largest_of_four(
            _mm256_max_ps(a[0], a[1]),
            _mm256_max_ps(b[0], b[1]),
            _mm256_max_ps(c[0], c[1]),
            _mm256_max_ps(d[0], d[1])
        ))
    }
    #[inline(always)]
    fn store_bytes_of_each(self, x: [Self::I; 4], out: &mut [[i8; LANES]; 4]) -> [i32; 4] {
        intrinsic!({
            let out: *mut __m256i = out.as_mut_ptr().cast();
            let first = two_of_bytes(x[0], x[1]);
            let second = two_of_bytes(x[2], x[3]);
            _mm256_storeu_si256(out, first);
            _mm256_storeu_si256(out.add(1), second);
            // Within each half, the sums of four bytes of the first and the second vector are adjacent.
            let sums = _mm256_hadd_epi32(sums_by_four(first), sums_by_four(second));
            let sums = _mm256_hadd_epi32(sums, sums);
            let (even, odd) = (_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            let mut four = [0; 4];
            _mm_storeu_si128(four.as_mut_ptr().cast(), _mm_unpacklo_epi32(even, odd));
            four
        })
    }
}

impl IntegerDot for Avx2 {
    type Vectors = Self;
    const DOT_BIAS: i32 = 0;
    type Sums = [__m256i; 4];
    type Quads = [__m256i; 4];
    const SUMS: usize = 2;

    #[inline(always)]
    fn vectors(self) -> Self {
        self
    }
    #[inline(always)]
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self> {
        intrinsic!({
            let (a, ones) = (_mm256_set1_epi32(a), _mm256_set1_epi16(1));
            let mut sum = sum;
            for (half, sum) in sum.iter_mut().enumerate() {
                let lanes = _mm256_loadu_si256(lanes.as_ptr().add(8 * half).cast());
                // The sign is moved from the lanes to the other operand; 2 · 127 · 127 fits in 16 bits.
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(lanes), _mm256_sign_epi8(a, lanes));
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
            sum
        })
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        intrinsic!([_mm256_setzero_si256(); 4])
    }
    #[inline(always)]
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads {
        intrinsic!({
            let units = _mm256_set1_epi16(0x8001_u16 as i16);
            let (mut first, mut second) = ([units; 2], [units; 2]);
            for half in 0..2 {
                let high = _mm256_loadu_si256(high.as_ptr().add(8 * half).cast());
                let low = _mm256_loadu_si256(low.as_ptr().add(8 * half).cast());
                // Products of unsigned 1 and 128 with signed low and high bytes.
                first[half] = _mm256_maddubs_epi16(units, _mm256_unpacklo_epi8(low, high));
                second[half] = _mm256_maddubs_epi16(units, _mm256_unpackhi_epi8(low, high));
            }
            [first[0], second[0], first[1], second[1]]
        })
    }
    #[inline(always)]
    fn add_products(self, sums: Self::Sums, quads: Self::Quads, factors: u64) -> Self::Sums {
        intrinsic!({
            let (factors, mut sums) = (_mm256_set1_epi64x(factors as i64), sums);
            for (sum, quads) in sums.iter_mut().zip(quads) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(quads, factors));
            }
            sums
        })
    }
    #[inline(always)]
    fn totals(self, sums: Self::Sums) -> IntegersOf<Self> {
        intrinsic!([_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3])])
    }
}

/// Returns the largest lane of each of four vectors of eight lanes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn largest_of_four(a: __m256, b: __m256, c: __m256, d: __m256) -> [f32; 4] {
    let ab = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    let cd = _mm256_max_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    // The lower pairs of both, then the upper pairs.
    let lower = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
    let upper = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
    let halves = _mm256_max_ps(lower, upper);
    let four = _mm_max_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
    let mut out = [0.0; 4];
    // SAFETY: `out` has room for four floats.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), four) };
    out
}

/// Packs the lanes of two vectors to bytes, in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn two_of_bytes(x: [__m256i; 2], y: [__m256i; 2]) -> __m256i {
    let bytes = _mm256_packs_epi16(_mm256_packs_epi32(x[0], x[1]), _mm256_packs_epi32(y[0], y[1]));
    // Packing works within 128-bit halves.
    _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// Returns the sum of every four bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums_by_four(bytes: __m256i) -> __m256i {
    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}
