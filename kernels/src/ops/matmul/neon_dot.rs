//! Matmul with NEON int8 dot products: `sdot` multiplies four columns of four output rows at once.

use core::arch::aarch64::*;
use core::arch::asm;
use core::ops::Range;

use super::neon::Multiply;
use super::run::tile_shapes;
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::outline_with;

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("matmul-dotprod", CpuFeatures::NEON.with(CpuFeatures::DOTPROD), dotprod);

fn dotprod(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the kernel list selects this entry only if the processor has dot products.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "neon,dotprod")]
fn shell(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<NeonDotprod, Shapes, RowShapes>(NeonDotprod::inside(), product, rows, panels, out);
}

tile_shapes!(
    /// Tiles of block types, floats and W4i.
    Shapes, 1 => 4, 4 => 2, 3 => 2, 2 => 4
);
tile_shapes!(
    /// Tiles of W8r.
    RowShapes, 1 => 4, 4 => 4, 3 => 4, 2 => 4
);

/// A token that proves that the processor has the `dotprod` extension.
#[derive(Clone, Copy)]
pub(super) struct NeonDotprod(());

impl NeonDotprod {
    /// Creates the token inside a function that is compiled for `dotprod`.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(super) fn inside() -> Self {
        Self(())
    }
}

outline_with!(NeonDotprod, "neon,dotprod");

impl Multiply for NeonDotprod {
    #[inline(always)]
    fn dot(self, sum: int32x4_t, weights: uint8x16_t, a: i32) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: `self` proves that the processor has the instruction, which only accesses its registers.
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
