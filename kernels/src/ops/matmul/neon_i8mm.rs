//! Matmul with the NEON int8 matrix multiply: `smmla` multiplies eight columns of two rows and two outputs.
//!
//! Two adjacent groups of columns, zipped, give eight columns of outputs 0 and 1 and of outputs 2 and 3. A
//! single row uses `sdot`.

use core::arch::aarch64::*;
use core::ops::Range;

use super::formats::{QuantPlane, ScaleAddress, ScaleScheme};
use super::neon::Multiply;
use super::run::tile_shapes;
use super::simd::MatmulSimd;
use super::tile::{self, HalfBlock, LoopExtent, QuantizedRow, row_sum, scaled_sum};
use super::{Function, MatmulOperands, Output, run};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::NeonI8mm;

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("matmul-i8mm", CpuFeatures::NEON.with(CpuFeatures::DOTPROD).with(CpuFeatures::I8MM), i8mm);

fn i8mm(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    // SAFETY: the kernel list selects this entry only if the processor has dot and matrix products.
    unsafe { shell(product, rows, panels, out) }
}

#[target_feature(enable = "neon,dotprod,i8mm")]
fn shell(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    run::run::<NeonI8mm, Shapes, RowShapes>(NeonI8mm::inside(), product, rows, panels, out);
}

tile_shapes!(
    /// Tiles of block types, floats and W4i.
    Shapes, 1 => 4, 4 => 2, 2 => 4
);
tile_shapes!(
    /// Tiles of W8r.
    RowShapes, 1 => 4, 4 => 4, 2 => 4
);

/// Integer accumulators of one vector of outputs for pairs of rows: `[pair][half]` holds, row-major, outputs 0 and 1 or
/// 2 and 3. Of `M` pairs the first half is used: `M` is the number of rows.
type Squares<const M: usize> = [[int32x4_t; 2]; M];

/// Starts accumulators with one initial value for each row.
#[inline(always)]
fn start_squares<const M: usize>(initial: [i32; M]) -> Squares<M> {
    core::array::from_fn(|pair| {
        let [first, second] = [2 * pair, 2 * pair + 1].map(|m| initial.get(m).copied().unwrap_or(0));
        // SAFETY: NEON is part of the target.
        unsafe { [vcombine_s32(vdup_n_s32(first), vdup_n_s32(second)); 2] }
    })
}

/// Returns the sums of each row.
#[inline(always)]
fn row_sums<const M: usize>(squares: Squares<M>) -> [int32x4_t; M] {
    core::array::from_fn(|m| {
        let [low, high] = squares[m / 2];
        // SAFETY: NEON is part of the target.
        unsafe {
            let (low, high) = (vreinterpretq_s64_s32(low), vreinterpretq_s64_s32(high));
            let both = if m % 2 == 0 { vzip1q_s64(low, high) } else { vzip2q_s64(low, high) };
            vreinterpretq_s32_s64(both)
        }
    })
}

impl Multiply for NeonI8mm {
    #[inline(always)]
    fn dot(self, sum: int32x4_t, weights: uint8x16_t, a: i32) -> int32x4_t {
        self.dotprod().sdot(sum, weights, a)
    }

    #[inline(always)]
    unsafe fn tile<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
        self,
        panels: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        blocks: LoopExtent,
        sums: &mut [[float32x4_t; V]; M],
    ) {
        // SAFETY: the arguments are passed on; this method and both functions have the contract of `tile::integers`.
        unsafe {
            if const { M.is_multiple_of(2) } {
                pairs_of_rows::<P, S, M, V>(self, panels, lanes, rows, blocks, sums);
            } else {
                tile::integers::<Self, P, S, M, V>(self, panels, lanes, rows, blocks, sums);
            }
        }
    }
}

/// As [`tile::integers`], for an even number of rows.
///
/// # Safety
/// As for [`tile::integers`].
#[inline(always)]
unsafe fn pairs_of_rows<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
    l: NeonI8mm,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    rows: &[QuantizedRow; M],
    blocks: LoopExtent,
    sums: &mut [[float32x4_t; V]; M],
) {
    for index in 0..blocks.count * (2 * S::MACROS) {
        let at = HalfBlock::new::<P, S>(index / 2, index % 2);
        // SAFETY: the half block lies inside the panels, its columns inside the rows.
        unsafe { half_block::<P, S, M, V>(l, panels, lanes, at, rows, sums) };
    }
}

/// Expands a block of code with the constants `$g` from 0 to 6, in steps of two, and `$h` = `$g` + 1.
macro_rules! pairs_of_groups {
    ($g:ident, $h:ident => $body:block) => {
        pairs_of_groups!(@ $g $h $body 0 2 4 6)
    };
    (@ $g:ident $h:ident $body:block $($value:literal)*) => {
        $({ const $g: usize = $value; const $h: usize = $value + 1; $body })*
    };
}

/// Adds the products of half a macro-block to `sums`.
///
/// # Safety
/// Every pointer of `panels` must be valid for a panel that has the half block, and every row for its columns.
#[inline(always)]
unsafe fn half_block<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
    l: NeonI8mm,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    at: HalfBlock,
    rows: &[QuantizedRow; M],
    sums: &mut [[float32x4_t; V]; M],
) {
    let bias = if P::SIGNED { 0 } else { P::OFFSET };
    let column = at.index * HalfBlock::COLUMNS;
    let mut squares = [start_squares([0; M]); V];
    pairs_of_groups!(G, H => {
        // SAFETY: the groups' lines lie inside the macro-block, their columns inside the rows.
        unsafe {
            if const { G.is_multiple_of(S::SUB / 4) } {
                squares = [start_squares(rows.map(|row| -bias * row_sum::<S>(row, column + 4 * G))); V];
            }
            let a: [int32x4_t; M] = core::array::from_fn(|pair| {
                let eight = |m: usize| vld1_s32(rows[m % M].values.add(column / 4 + G));
                vcombine_s32(eight(2 * pair), eight(2 * pair + 1))
            });
            for (v, squares) in squares.iter_mut().enumerate() {
                let lines = panels[v].add(at.lines + 4 * lanes[v]);
                let first = vreinterpretq_u32_u8(P::group::<NeonI8mm, G>(l, lines, at.half));
                let second = vreinterpretq_u32_u8(P::group::<NeonI8mm, H>(l, lines, at.half));
                let (low, high) = (vzip1q_u32(first, second), vzip2q_u32(first, second));
                for (square, a) in squares[..M / 2].iter_mut().zip(a) {
                    *square = [l.smmla(square[0], a, low), l.smmla(square[1], a, high)];
                }
            }
            if const { (H + 1).is_multiple_of(S::SUB / 4) } {
                for v in 0..V {
                    let dots = row_sums(squares[v]).map(|dot| l.finish(dot, 0));
                    let place = at.scales::<P, S>(panels[v], lanes[v], const { G / (S::SUB / 4) });
                    add_scaled::<S, M, V>(l, place, rows, column + 4 * G, &dots, v, sums);
                }
            }
        }
    });
}

/// Adds the dot products of the sub-block at `place`, which begins at `column`, to the sums of vector `v`.
///
/// # Safety
/// As for [`ScaleScheme::scale`], and every row must be valid for the columns.
#[inline(always)]
unsafe fn add_scaled<S: ScaleScheme, const M: usize, const V: usize>(
    l: NeonI8mm,
    place: ScaleAddress,
    rows: &[QuantizedRow; M],
    column: usize,
    dots: &[float32x4_t; M],
    v: usize,
    sums: &mut [[float32x4_t; V]; M],
) {
    // SAFETY: `place` is what `S::scale` and `S::min` require, and the rows have `column` (see `# Safety`).
    unsafe {
        let scale = S::scale(l, place);
        for m in 0..M {
            let row_scale = *rows[m].scales.add(column / 32);
            sums[m][v] = l.fma(dots[m], l.mul(scale, l.splat(row_scale)), sums[m][v]);
        }
        if S::MIN {
            let min = S::min(l, place);
            for m in 0..M {
                sums[m][v] = l.fma(min, l.splat(scaled_sum::<S>(rows[m], column)), sums[m][v]);
            }
        }
    }
}
