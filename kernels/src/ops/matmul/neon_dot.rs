//! Products with NEON's dot products of bytes: `sdot` takes four columns of four output rows at once.

use core::arch::aarch64::*;
use core::arch::asm;
use core::ops::Range;

use super::neon::Multiply;
use super::{Function, Output, Product, run};
use crate::Features;
use crate::ops::Kernel;

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("matmul-dotprod", Features::NEON.with(Features::DOTPROD), dotprod);

fn dotprod(product: &Product<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the list selects this entry only where the processor has dot products.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "neon,dotprod")]
fn shell(product: &Product<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<Dot, 4, 2>(Dot::inside(), product, rows, panels, out);
}

/// Proof that the processor has dot products of bytes.
#[derive(Clone, Copy)]
pub(super) struct Dot(());

impl Dot {
    /// The token, inside a function that is compiled for dot products.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn inside() -> Self {
        Self(())
    }
}

impl Multiply for Dot {
    #[inline(always)]
    fn dot(self, sum: int32x4_t, weights: uint8x16_t, a: i32) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: `self` proves that the processor has the instruction, which touches only its registers.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {weights:v}.16b, {a:v}.4b[0]",
                sum = inout(vreg) sum,
                weights = in(vreg) weights,
                a = in(vreg) a,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sum
    }
}
