//! Matmul with NEON: four output rows per register, widening multiplies for the integers.

use core::arch::aarch64::*;
use core::ops::Range;

use super::formats::{QuantPlane, ScaleScheme};
use super::run::tile_shapes;
use super::simd::MatmulSimd;
use super::tile::{self, LoopExtent, QuantizedRow};
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::quant::codebooks;
use crate::simd::{InstructionSet, Neon};

pub(super) const KERNEL: Kernel<Function> = Kernel::new("matmul-neon", CpuFeatures::NEON, neon);

fn neon(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<Neon, Shapes, RowShapes>(Neon::inside(), product, rows, panels, out);
}

tile_shapes!(
    /// Tiles of block types, floats and W4i.
    Shapes, 1 => 4, 4 => 2, 3 => 2, 2 => 4
);
tile_shapes!(
    /// Tiles of W8r.
    RowShapes, 1 => 4, 4 => 4, 2 => 4
);

/// Wraps intrinsic calls.
macro_rules! intrinsic {
    ($call:expr) => {
        // SAFETY: NEON is part of the target; pointers are valid for what `MatmulSimd` says.
        unsafe { $call }
    };
}

/// Logical right shift of each byte.
macro_rules! shifted {
    ($x:expr, $shift:ident, $($n:literal)*) => {
        match const { $shift } {
            $($n => vshrq_n_u8::<$n>($x),)*
            _ => $x,
        }
    };
}

/// Loads four bytes into the low half of a register.
///
/// # Safety
/// Four bytes at `from` must be readable.
#[inline(always)]
unsafe fn four_bytes(from: *const u8) -> uint8x8_t {
    // SAFETY: NEON is part of the target, and four bytes at `from` are readable (see `# Safety`).
    intrinsic!(vcreate_u8(u64::from(from.cast::<u32>().read_unaligned())))
}

/// The integer instructions, in which the NEON extensions differ.
pub(super) trait Multiply: InstructionSet {
    /// See [`MatmulSimd::FLOATS`].
    const FLOATS: Option<Function> = Some(neon);

    /// Adds the products of four times four weights with the four integers in `a`, none of which is −128.
    fn dot(self, sum: int32x4_t, weights: uint8x16_t, a: i32) -> int32x4_t;

    /// See [`MatmulSimd::integers`].
    ///
    /// # Safety
    /// As for [`tile::integers`].
    #[inline(always)]
    unsafe fn tile<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
        self,
        panels: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        blocks: LoopExtent,
        sums: &mut [[float32x4_t; V]; M],
    ) {
        // SAFETY: the arguments are passed on unchanged, and this method has the contract of `tile::integers`.
        unsafe { tile::integers::<Self, P, S, M, V>(self, panels, lanes, rows, blocks, sums) }
    }
}

impl Multiply for Neon {
    const FLOATS: Option<Function> = None;

    #[inline(always)]
    fn dot(self, sum: int32x4_t, weights: uint8x16_t, a: i32) -> int32x4_t {
        intrinsic!({
            let w = vreinterpretq_s8_u8(weights);
            let a = vreinterpretq_s8_s32(vdupq_n_s32(a));
            // The sum of a pair of products is at most 2 · 128 · 127 and fits into 16 bits.
            let low = vmull_s8(vget_low_s8(w), vget_low_s8(a));
            let high = vmull_high_s8(w, a);
            vpadalq_s16(sum, vpaddq_s16(low, high))
        })
    }
}

impl<N: Multiply> MatmulSimd for N {
    const WIDTH: usize = 4;
    const COMPACT: bool = true;
    const SIGNED_BIAS: i32 = 0;
    const FLOATS: Option<Function> = <N as Multiply>::FLOATS;
    const WIDE: bool = true;
    type B = uint8x16_t;
    type D = int32x4_t;
    type W = int32x4_t;
    type F = float32x4_t;

    #[inline(always)]
    unsafe fn bytes(self, from: *const u8) -> Self::B {
        intrinsic!(vld1q_u8(from))
    }
    #[inline(always)]
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::B) -> Self::B {
        intrinsic!({
            let shifted = shifted!(x, SHIFT, 1 2 3 4 5 6 7);
            if const { MASK == u8::MAX >> SHIFT } { shifted } else { vandq_u8(shifted, vdupq_n_u8(MASK)) }
        })
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
    fn times(self, x: Self::B, factors: Self::W) -> Self::B {
        intrinsic!({
            let bytes =
                vmulq_n_u32(vreinterpretq_u32_s32(vandq_s32(factors, vdupq_n_s32(0xff))), 0x0101_0101);
            vmulq_u8(x, vreinterpretq_u8_u32(bytes))
        })
    }
    #[inline(always)]
    unsafe fn store_bytes(self, x: Self::B, to: *mut u8) {
        intrinsic!(vst1q_u8(to, x))
    }
    #[inline(always)]
    fn start(self, initial: i32) -> Self::D {
        intrinsic!(vdupq_n_s32(initial))
    }
    #[inline(always)]
    fn dot_small(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        self.dot(sum, weights, a)
    }
    #[inline(always)]
    fn dot_signed(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D {
        self.dot(sum, weights, a)
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
    unsafe fn words(self, from: *const u8) -> Self::W {
        intrinsic!(vreinterpretq_s32_u32(vmovl_u16(vld1_u16(from.cast()))))
    }
    #[inline(always)]
    fn factors<const SHIFT: u32>(self, words: Self::W) -> Self::W {
        intrinsic!({
            let codes = vandq_s32(vshlq_s32(words, vdupq_n_s32(-(SHIFT as i32))), vdupq_n_s32(15));
            // The top byte looks up the factor; the other bytes yield zero.
            let index = vorrq_s32(vshlq_n_s32::<24>(codes), vdupq_n_s32(0x00ff_ffff));
            let raised = self.look_up(vreinterpretq_u8_s32(index), &codebooks::W4I_FACTORS);
            vshrq_n_s32::<24>(vreinterpretq_s32_u8(raised))
        })
    }
    #[inline(always)]
    fn weigh(self, total: Self::D, dot: Self::D, factors: Self::W) -> Self::D {
        intrinsic!(vmlaq_s32(total, dot, factors))
    }
    #[inline(always)]
    unsafe fn integers<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
        self,
        panels: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        blocks: LoopExtent,
        sums: &mut [[Self::F; V]; M],
    ) {
        // SAFETY: the arguments are passed on unchanged, and `integers` has the contract of `Multiply::tile`.
        unsafe { self.tile::<P, S, M, V>(panels, lanes, rows, blocks, sums) }
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
        intrinsic!(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.cast()))))
    }
    #[inline(always)]
    unsafe fn brains(self, from: *const u8) -> Self::F {
        intrinsic!(vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast()))))
    }
    #[inline(always)]
    unsafe fn signed(self, from: *const u8) -> Self::F {
        intrinsic!({
            let unpacked = vmovl_s8(vreinterpret_s8_u8(four_bytes(from)));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(unpacked)))
        })
    }
    #[inline(always)]
    unsafe fn unsigned<const SHIFT: u32, const MASK: u8>(self, from: *const u8) -> Self::F {
        intrinsic!({
            let four = four_bytes(from);
            let bits = self.bits::<SHIFT, MASK>(vcombine_u8(four, four));
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vget_low_u8(bits)))))
        })
    }
    #[inline(always)]
    unsafe fn half_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        intrinsic!({
            let pairs = vld1q_u32(from.cast());
            let (low, high) = (vmovn_u32(pairs), vshrn_n_u32::<16>(pairs));
            (vcvt_f32_f16(vreinterpret_f16_u16(low)), vcvt_f32_f16(vreinterpret_f16_u16(high)))
        })
    }
    #[inline(always)]
    unsafe fn brain_pairs(self, from: *const u8) -> (Self::F, Self::F) {
        intrinsic!({
            let pairs = vld1q_u32(from.cast());
            let high = vandq_u32(pairs, vdupq_n_u32(0xffff_0000));
            (vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs)), vreinterpretq_f32_u32(high))
        })
    }
}
