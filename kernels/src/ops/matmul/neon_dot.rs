//! Matmul with NEON int8 dot products: `sdot` multiplies four columns of four output rows at once.

use core::arch::aarch64::*;
use core::ops::Range;

use super::neon::Multiply;
use super::run::tile_shapes;
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::NeonDotprod;

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

impl Multiply for NeonDotprod {
    #[inline(always)]
    fn dot(self, sum: int32x4_t, weights: uint8x16_t, a: i32) -> int32x4_t {
        self.sdot(sum, weights, a)
    }
}
