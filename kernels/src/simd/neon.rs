//! Sixteen lanes in four NEON registers.

use core::arch::aarch64::*;

use super::{IntegerDot, IntegersOf, LANES, Simd, outline_with};

/// A token that proves that the processor has NEON, which every 64-bit Arm processor with floating point has.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// Creates the token.
    #[inline(always)]
    pub(crate) fn inside() -> Self {
        Self(())
    }
}

/// Evaluates an expression for each of the four registers. Written out, since a loop of four rounds for every
/// operation would take the compiler minutes to unroll.
macro_rules! quad {
    ($i:ident => $call:expr) => {
        // SAFETY: NEON is part of the target; pointers come from references to arrays of sixteen lanes.
        unsafe {
            [
                {
                    let $i = 0;
                    $call
                },
                {
                    let $i = 1;
                    $call
                },
                {
                    let $i = 2;
                    $call
                },
                {
                    let $i = 3;
                    $call
                },
            ]
        }
    };
}

outline_with!(Neon);

impl Simd for Neon {
    const REGISTERS: usize = 8;
    type F = [float32x4_t; 4];
    type I = [int32x4_t; 4];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        quad!(_i => vdupq_n_f32(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        quad!(i => vld1q_f32(x.as_ptr().add(4 * i)))
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        for (part, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            // SAFETY: NEON is part of the target; `part` holds four lanes.
            unsafe { vst1q_f32(part.as_mut_ptr(), x) }
        }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        quad!(i => vaddq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        quad!(i => vsubq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        quad!(i => vmulq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        quad!(i => vdivq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        quad!(i => vfmaq_f32(c[i], a[i], b[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        quad!(i => vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]))
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        quad!(i => vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i]))
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        quad!(i => vabsq_f32(a[i]))
    }
    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        quad!(i => vbslq_f32(vcltq_f32(a[i], b[i]), x[i], y[i]))
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        quad!(i => vcvtnq_s32_f32(x[i]))
    }
    #[inline(always)]
    fn float(self, x: Self::I) -> Self::F {
        quad!(i => vcvtq_f32_s32(x[i]))
    }
    #[inline(always)]
    fn power_of_two(self, x: Self::I) -> Self::F {
        quad!(i => vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x[i], vdupq_n_s32(127)))))
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::I, out: &mut [i8; LANES]) {
        let mut lanes = [0_i32; LANES];
        for (part, x) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            // SAFETY: NEON is part of the target; `part` holds four lanes.
            unsafe { vst1q_s32(part.as_mut_ptr(), x) }
        }
        *out = lanes.map(|lane| lane as i8);
    }
    #[inline(always)]
    fn butterfly<const APART: usize>(self, x: Self::F) -> Self::F {
        match const { APART } {
            // SAFETY: NEON is part of the target.
            8 => unsafe {
                [vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]), vsubq_f32(x[0], x[2]), vsubq_f32(x[1], x[3])]
            },
            // SAFETY: NEON is part of the target.
            4 => unsafe {
                [vaddq_f32(x[0], x[1]), vsubq_f32(x[0], x[1]), vaddq_f32(x[2], x[3]), vsubq_f32(x[2], x[3])]
            },
            2 => {
                // SAFETY: NEON is part of the target.
                let upper = unsafe { vcombine_u32(vdup_n_u32(0), vdup_n_u32(u32::MAX)) };
                quad!(i => {
                    let y = vextq_f32::<2>(x[i], x[i]);
                    vbslq_f32(upper, vsubq_f32(y, x[i]), vaddq_f32(x[i], y))
                })
            }
            _ => {
                // SAFETY: NEON is part of the target.
                let upper = unsafe { vreinterpretq_u32_u64(vdupq_n_u64(0xffff_ffff_0000_0000)) };
                quad!(i => {
                    let y = vrev64q_f32(x[i]);
                    vbslq_f32(upper, vsubq_f32(y, x[i]), vaddq_f32(x[i], y))
                })
            }
        }
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        quad!(_i => vdupq_n_s32(x))
    }
    #[inline(always)]
    fn store_shorts(self, x: Self::I, out: &mut [i16; LANES]) {
        for (part, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            // SAFETY: NEON is part of the target; `part` holds four lanes.
            unsafe { vst1_s16(part.as_mut_ptr(), vmovn_s32(x)) }
        }
    }
    #[inline(always)]
    fn load_halves(self, x: &[u32; LANES / 2]) -> Self::F {
        quad!(i => vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x.as_ptr().cast::<u16>().add(4 * i)))))
    }
}

impl IntegerDot for Neon {
    type Vectors = Self;
    const DOT_BIAS: i32 = 0;
    type Sums = [int32x4_t; 8];
    type Quads = [int16x8_t; 8];
    const SUMS: usize = 2;

    #[inline(always)]
    fn vectors(self) -> Self {
        self
    }
    #[inline(always)]
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self> {
        quad!(i => {
            let lanes = vreinterpretq_s8_u32(vld1q_u32(lanes.as_ptr().add(4 * i)));
            let a = vreinterpretq_s8_s32(vdupq_n_s32(a));
            let low = vmull_s8(vget_low_s8(lanes), vget_low_s8(a));
            let high = vmull_high_s8(lanes, a);
            // Sums of two products fit in 16 bits: 2 · 127 · 127.
            vpadalq_s16(sum[i], vpaddq_s16(low, high))
        })
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        // SAFETY: NEON is part of the target.
        unsafe { [vdupq_n_s32(0); 8] }
    }
    #[inline(always)]
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads {
        // SAFETY: NEON is part of the target; pointers come from references to sixteen lanes.
        unsafe {
            let mut quads = [vdupq_n_s16(0); 8];
            for (i, pair) in quads.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let [high, low] =
                    [high, low].map(|bytes| vreinterpretq_s8_u32(vld1q_u32(bytes.as_ptr().add(4 * i))));
                pair[0] = vaddw_s8(vshll_n_s8::<7>(vget_low_s8(high)), vget_low_s8(low));
                pair[1] = vaddw_high_s8(vshll_high_n_s8::<7>(high), low);
            }
            quads
        }
    }
    #[inline(always)]
    fn add_products(self, sums: Self::Sums, quads: Self::Quads, factors: u64) -> Self::Sums {
        let mut sums = sums;
        // SAFETY: NEON is part of the target.
        unsafe {
            let factors = vreinterpretq_s16_u64(vdupq_n_u64(factors));
            for (sum, quads) in sums.iter_mut().zip(quads) {
                let first = vmull_s16(vget_low_s16(quads), vget_low_s16(factors));
                *sum = vaddq_s32(*sum, vpaddq_s32(first, vmull_high_s16(quads, factors)));
            }
        }
        sums
    }
    #[inline(always)]
    fn totals(self, sums: Self::Sums) -> IntegersOf<Self> {
        quad!(i => vpaddq_s32(sums[2 * i], sums[2 * i + 1]))
    }
}
