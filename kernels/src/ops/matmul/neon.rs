//! Products with NEON: four output rows in a register, widening multiplies for the integers.

use core::arch::aarch64::*;
use core::ops::Range;

use half::f16;

use super::lanes::Lanes;
use super::{Function, Output, Product, run};
use crate::Features;
use crate::ops::Kernel;
use crate::simd::Neon;

pub(super) const KERNEL: Kernel<Function> = Kernel::new("matmul-neon", Features::NEON, neon);

fn neon(product: &Product<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<Neon, 4, 2>(Neon::inside(), product, rows, panels, out);
}

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: NEON is part of the target; pointers are the caller's promise.
        unsafe { $call }
    };
}

/// Reads four numbers, which need not be aligned.
#[inline(always)]
unsafe fn four<T: Copy>(from: *const u8) -> [T; 4] {
    // SAFETY: the caller promises the bytes.
    unsafe { from.cast::<[T; 4]>().read_unaligned() }
}

impl Neon {
    #[inline(always)]
    fn from(self, lanes: [f32; 4]) -> float32x4_t {
        intrinsic!(vld1q_f32(lanes.as_ptr()))
    }
}

impl Lanes for Neon {
    const WIDTH: usize = 4;
    const SIGNED_BIAS: i32 = 0;
    type B = uint8x16_t;
    type D = int32x4_t;
    type F = float32x4_t;

    #[inline(always)]
    unsafe fn bytes(self, from: *const u8) -> Self::B {
        intrinsic!(vld1q_u8(from))
    }
    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::B) -> Self::B {
        intrinsic!(vandq_u8(vshlq_u8(x, vdupq_n_s8(-(SHIFT as i8))), vdupq_n_u8(MASK)))
    }
    #[inline(always)]
    fn raise<const SHIFT: u32>(self, x: Self::B) -> Self::B {
        intrinsic!(vshlq_u8(x, vdupq_n_s8(SHIFT as i8)))
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        intrinsic!(vorrq_u8(a, b))
    }
    #[inline(always)]
    fn look_up(self, x: Self::B, table: &[i8; 16]) -> Self::B {
        intrinsic!(vqtbl1q_u8(vreinterpretq_u8_s8(vld1q_s8(table.as_ptr())), x))
    }
    #[inline(always)]
    fn start(self, initial: i32) -> Self::D {
        intrinsic!(vdupq_n_s32(initial))
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        self.dot_signed(sum, weights, a)
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        intrinsic!({
            let w = vreinterpretq_s8_u8(weights);
            let a = vreinterpretq_s8_s32(vdupq_n_s32(a));
            // A pair of products is at most 2 · 128 · 127 and fits 16 bits.
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
            let high = vmull_high_s8(w, a);
            vpadalq_s16(sum, vpaddq_s16(low, high))
        })
    }
    #[inline(always)]
    fn settle(self, sum: Self::D) -> Self::D {
        sum
    }
    #[inline(always)]
    fn finish(self, sum: Self::D, _initial: i32) -> Self::F {
        intrinsic!(vcvtq_f32_s32(sum))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!(vdupq_n_f32(x))
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vaddq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!(vmulq_f32(a, b))
    }
    #[inline(always)]
    fn negate(self, a: Self::F) -> Self::F {
        intrinsic!(vnegq_f32(a))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        intrinsic!(vfmaq_f32(c, a, b))
    }
    #[inline(always)]
    unsafe fn floats(self, from: *const f32) -> Self::F {
        intrinsic!(vld1q_f32(from))
    }
    #[inline(always)]
    unsafe fn store(self, x: Self::F, to: *mut f32) {
        intrinsic!(vst1q_f32(to, x))
    }
    #[inline(always)]
    unsafe fn halves(self, from: *const u8) -> Self::F {
        self.from(intrinsic!(four::<u16>(from)).map(|bits| f16::from_bits(bits).to_f32()))
    }
    #[inline(always)]
    unsafe fn brains(self, from: *const u8) -> Self::F {
        self.from(intrinsic!(four::<u16>(from)).map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }
    #[inline(always)]
    unsafe fn signed(self, from: *const u8) -> Self::F {
        self.from(intrinsic!(four::<i8>(from)).map(f32::from))
    }
    #[inline(always)]
    unsafe fn unsigned<const SHIFT: u32, const MASK: u8>(self, from: *const u8) -> Self::F {
        self.from(intrinsic!(four::<u8>(from)).map(|byte| f32::from((byte >> SHIFT) & MASK)))
    }
    #[inline(always)]
    unsafe fn half_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        let pairs = intrinsic!(four::<[u16; 2]>(from));
        let half = |bits: u16| f16::from_bits(bits).to_f32();
        (self.from(pairs.map(|pair| half(pair[0]))), self.from(pairs.map(|pair| half(pair[1]))))
    }
    #[inline(always)]
    unsafe fn brain_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        let pairs = intrinsic!(four::<[u16; 2]>(from));
        let brain = |bits: u16| f32::from_bits(u32::from(bits) << 16);
        (self.from(pairs.map(|pair| brain(pair[0]))), self.from(pairs.map(|pair| brain(pair[1]))))
    }
}
