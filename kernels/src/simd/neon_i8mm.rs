//! NEON with int8 matrix products.

use core::arch::aarch64::*;
use core::arch::asm;

use super::{NeonDotprod, outline_with};

/// A token that proves that the processor has the `dotprod` and `i8mm` extensions.
#[derive(Clone, Copy)]
pub(crate) struct NeonI8mm(NeonDotprod);

impl NeonI8mm {
    /// Creates the token inside a function that is compiled for both extensions.
    #[inline]
    #[target_feature(enable = "neon,dotprod,i8mm")]
    pub(crate) fn inside() -> Self {
        Self(NeonDotprod::inside())
    }

    #[inline(always)]
    pub(crate) fn dotprod(self) -> NeonDotprod {
        self.0
    }

    /// Adds the product of the 2 × 8 matrix in `a` with the 2 × 8 matrix in `b`, transposed.
    #[inline(always)]
    pub(crate) fn smmla(self, sum: int32x4_t, a: int32x4_t, b: uint32x4_t) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: `self` proves that the processor has the instruction, which only accesses its registers.
        unsafe {
            asm!(
                "smmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
                sum = inout(vreg) sum,
                a = in(vreg) a,
                b = in(vreg) b,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sum
    }
}

outline_with!(NeonI8mm, "neon,dotprod,i8mm");
