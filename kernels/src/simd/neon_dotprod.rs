//! NEON with int8 dot products.

use core::arch::aarch64::*;
use core::arch::asm;

use super::{IntegerDot, IntegersOf, LANES, Neon, Simd, outline_with};

/// A token that proves that the processor has the `dotprod` extension.
#[derive(Clone, Copy)]
pub(crate) struct NeonDotprod(Neon);

impl NeonDotprod {
    /// Creates the token inside a function that is compiled for `dotprod`.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(crate) fn inside() -> Self {
        Self(Neon::inside())
    }

    /// Adds to each of four sums the dot product of four signed bytes of `bytes` with the lowest four of `word`.
    #[inline(always)]
    pub(crate) fn sdot(self, sum: int32x4_t, bytes: uint8x16_t, word: i32) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: `self` proves that the processor has the instruction, which only accesses its registers.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {bytes:v}.16b, {word:v}.4b[0]",
                sum = inout(vreg) sum,
                bytes = in(vreg) bytes,
                word = in(vreg) word,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sum
    }
}

outline_with!(NeonDotprod, "neon,dotprod");

impl IntegerDot for NeonDotprod {
    type Vectors = Neon;
    const DOT_BIAS: i32 = 0;
    type Sums = [[int32x4_t; 4]; 3];
    type Quads = [[uint8x16_t; 4]; 2];
    const SUMS: usize = 2;

    #[inline(always)]
    fn vectors(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self> {
        let mut sum = sum;
        for (lanes, sum) in lanes.as_chunks::<4>().0.iter().zip(&mut sum) {
            // SAFETY: there are four words, and NEON is part of the target.
            let bytes = unsafe { vreinterpretq_u8_u32(vld1q_u32(lanes.as_ptr())) };
            *sum = self.sdot(*sum, bytes, a);
        }
        sum
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        [self.0.splat_int(0); 3]
    }
    #[inline(always)]
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads {
        [high, low].map(|lanes| {
            let quarter = |i: usize| {
                // SAFETY: there are sixteen lanes, and NEON is part of the target.
                unsafe { vreinterpretq_u8_u32(vld1q_u32(lanes.as_ptr().add(4 * i))) }
            };
            [quarter(0), quarter(1), quarter(2), quarter(3)]
        })
    }
    /// The high bytes of four integers, then the low ones.
    #[inline(always)]
    fn factors(integers: &[i16; LANES]) -> [u64; LANES / 4] {
        let mut factors = [0; LANES / 4];
        for (factors, four) in factors.iter_mut().zip(integers.as_chunks::<4>().0) {
            let mut bytes = [0; 8];
            for (i, &x) in four.iter().enumerate() {
                let high = (x + 64) >> 7;
                (bytes[i], bytes[4 + i]) = (high as u8, (x - 128 * high) as u8);
            }
            *factors = u64::from_le_bytes(bytes);
        }
        factors
    }
    #[inline(always)]
    fn add_products(self, sums: Self::Sums, [high, low]: Self::Quads, factors: u64) -> Self::Sums {
        let [mut coarse, mut middle, mut fine] = sums;
        let (x, y) = (factors as i32, (factors >> 32) as i32);
        for i in 0..4 {
            coarse[i] = self.sdot(coarse[i], high[i], x);
            middle[i] = self.sdot(self.sdot(middle[i], high[i], y), low[i], x);
            fine[i] = self.sdot(fine[i], low[i], y);
        }
        [coarse, middle, fine]
    }
    #[inline(always)]
    fn totals(self, [coarse, middle, fine]: Self::Sums) -> IntegersOf<Self> {
        let mut totals = fine;
        for (i, total) in totals.iter_mut().enumerate() {
            // SAFETY: NEON is part of the target.
            unsafe {
                let upper = vaddq_s32(vshlq_n_s32::<7>(coarse[i]), middle[i]);
                *total = vaddq_s32(*total, vshlq_n_s32::<7>(upper));
            }
        }
        totals
    }
}
