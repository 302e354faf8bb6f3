//! Products of int14 keys and values with the NEON int8 matrix multiply: `smmla` multiplies eight columns or positions of
//! two lanes by both digits of eight integers of a query.

use core::arch::aarch64::*;

use super::int14_dot::{Factors, Int14Dot};
use crate::simd::{LANES, Neon, NeonDotprod, NeonI8mm, Simd};

impl Int14Dot for NeonI8mm {
    type Vectors = Neon;
    type Step<T> = [T; 2];
    const LANE_PARTS: usize = 2;
    /// For each digit of two lanes, four times: the products of both lanes with the high digits of the factors, then with
    /// the low ones.
    type Sums = [[int32x4_t; 4]; 2];
    const SUMS: usize = 2;

    #[inline(always)]
    fn vectors(self) -> Neon {
        Neon::inside()
    }
    #[inline(always)]
    fn steps<T>(all: &[T]) -> &[[T; 2]] {
        all.as_chunks().0
    }
    /// The high digits of eight integers, then the low ones.
    #[inline(always)]
    fn pack(integers: &[i16; LANES]) -> [Factors; LANES / 4] {
        let [a, b, c, d] = <NeonDotprod as Int14Dot>::pack(integers);
        [[a[0], b[0]], [a[1], b[1]], [c[0], d[0]], [c[1], d[1]]]
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        [Neon::inside().splat_int(0); 2]
    }
    #[inline(always)]
    fn add_products<const Q: usize>(
        self,
        sums: &mut [Self::Sums; Q],
        high: &[[u32; 16]; 2],
        low: &[[u32; 16]; 2],
        lane_part: usize,
        factors: [&[Factors; 2]; Q],
    ) {
        for (digit, lines) in [high, low].into_iter().enumerate() {
            let pairs = pairs_of_lanes(lines, lane_part);
            for (sums, factors) in sums.iter_mut().zip(factors) {
                // SAFETY: there are four floats, and NEON is part of the target.
                let factors = unsafe { vreinterpretq_s32_f32(vld1q_f32(factors.as_flattened().as_ptr())) };
                for (sum, pair) in sums[digit].iter_mut().zip(pairs) {
                    *sum = self.smmla(*sum, factors, pair);
                }
            }
        }
    }
    #[inline(always)]
    fn store_scaled(
        self,
        [high, low]: Self::Sums,
        lane_part: usize,
        scale: [float32x4_t; 4],
        out: &mut [f32; 16],
    ) {
        for i in 0..2 {
            let [[coarse, middle], [more_middle, fine]] =
                [high, low].map(|sums| by_factor(sums[2 * i], sums[2 * i + 1]));
            let at = 2 * lane_part + i;
            // SAFETY: NEON is part of the target; four floats are written.
            unsafe {
                let upper = vaddq_s32(vshlq_n_s32::<7>(coarse), vaddq_s32(middle, more_middle));
                let total = vaddq_s32(vshlq_n_s32::<7>(upper), fine);
                let to = &mut out.as_chunks_mut::<4>().0[at];
                vst1q_f32(to.as_mut_ptr(), vmulq_f32(vcvtq_f32_s32(total), scale[at]));
            }
        }
    }
}

/// Returns eight integers of two lanes, four times: two adjacent lines, zipped.
#[inline(always)]
fn pairs_of_lanes([first, second]: &[[u32; 16]; 2], lane_part: usize) -> [uint32x4_t; 4] {
    let eight = |i: usize| {
        let [first, second] = [first, second].map(|line| line.as_chunks::<4>().0[2 * lane_part + i].as_ptr());
        // SAFETY: there are four words, and NEON is part of the target.
        unsafe {
            let (first, second) = (vld1q_u32(first), vld1q_u32(second));
            [vzip1q_u32(first, second), vzip2q_u32(first, second)]
        }
    };
    let [[a, b], [c, d]] = [eight(0), eight(1)];
    [a, b, c, d]
}

/// Returns the products of four lanes with the high digits of the factors, and those with the low ones.
#[inline(always)]
fn by_factor(first: int32x4_t, second: int32x4_t) -> [int32x4_t; 2] {
    // SAFETY: NEON is part of the target.
    unsafe {
        let (first, second) = (vreinterpretq_s64_s32(first), vreinterpretq_s64_s32(second));
        [vzip1q_s64(first, second), vzip2q_s64(first, second)].map(|sums| vreinterpretq_s32_s64(sums))
    }
}
