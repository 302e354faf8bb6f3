//! The outer loops of a matmul: tiling over panels and rows, and the epilogue.

use core::marker::PhantomData;
use core::ops::Range;

use super::formats::{QuantPlane, ScaleScheme, by_type};
use super::row_types::{self, BookRow, ByteRow, RowScheme};
use super::simd::MatmulSimd;
use super::tile::{self, Bf16Pair, F16Pair, F32Element, FloatElement, LINE, QuantizedRow};
use super::{Input, MatmulOperands, Output};
use crate::ops::quantize::QuantizedRowLayout;
use crate::panel::{PanelType, ROWS};
use crate::simd::Outlined;

/// Computes a part of a matmul with the instructions of `L`, with `V1` vectors of outputs per tile for a
/// single row and `VN` for up to four rows.
#[inline(always)]
pub(super) fn run<L: MatmulSimd, const V1: usize, const VN: usize>(
    l: L,
    product: &MatmulOperands<'_>,
    rows: Range<usize>,
    panels: Range<usize>,
    out: Output<'_>,
) {
    let is_float = matches!(product.panel, PanelType::F32 | PanelType::F16 | PanelType::BF16);
    if let Some(floats) = L::FLOATS
        && is_float
    {
        return floats(product, rows, panels, out);
    }
    let part = MatmulShare::checked(product, rows, panels, out);
    macro_rules! compute {
        ($kind:expr, $vectors:ident) => {
            l.outline(Task::<_, V1, $vectors> { part: &part, kind: $kind })
        };
    }
    macro_rules! integers {
        ($plane:ty, $scheme:ty) => {
            compute!(Integers::<$plane, $scheme>(PhantomData), VN)
        };
    }
    by_type!(product.panel, integers, {
        PanelType::F32 | PanelType::F16 | PanelType::BF16 if const { L::FLOATS.is_some() } => unreachable!(),
        PanelType::F32 => compute!(Floats::<F32Element>(PhantomData), VN),
        PanelType::F16 => compute!(Floats::<F16Pair>(PhantomData), VN),
        PanelType::BF16 => compute!(Floats::<Bf16Pair>(PhantomData), VN),
        PanelType::W8R => compute!(Rows::<ByteRow>(PhantomData), V1),
        PanelType::W4I => compute!(Rows::<BookRow>(PhantomData), VN),
    })
}

/// A share of a matmul with weights of one panel type.
struct Task<'a, K, const V1: usize, const VN: usize> {
    part: &'a MatmulShare<'a>,
    kind: K,
}

impl<L: MatmulSimd, K: Kind, const V1: usize, const VN: usize> Outlined<L> for Task<'_, K, V1, VN> {
    #[inline(always)]
    fn run(self, l: L) {
        self.kind.compute::<L, V1, VN>(l, self.part);
    }
}

/// The computation for one panel type.
trait Kind: Sized {
    /// Computes a share.
    #[inline(always)]
    fn compute<L: MatmulSimd, const V1: usize, const VN: usize>(&self, l: L, part: &MatmulShare<'_>) {
        part.tiles::<L, V1, VN>(l, self);
    }

    /// Computes the products of `M` rows from `row` with `V` vectors of outputs.
    unsafe fn products<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        input: Input<'_>,
        shape: Shape,
        row: usize,
        vectors: &Vectors<V>,
    ) -> [[L::F; V]; M];
}

/// What all tiles of a matmul share, computed once up front: a tile with few columns takes only as long as a
/// few divisions.
#[derive(Clone, Copy)]
struct Shape {
    weights: *const u8,
    panel_bytes: usize,
    columns: usize,
    /// Blocks per panel.
    blocks: usize,
    /// Layout of quantized rows.
    layout: QuantizedRowLayout,
}

impl Shape {
    fn new(product: &MatmulOperands<'_>) -> Self {
        let (panel, columns) = (product.panel, product.columns);
        Self {
            weights: product.weights.as_ptr(),
            panel_bytes: panel.panel_bytes(columns).unwrap_or(0),
            columns,
            blocks: panel.columns_padded(columns) / panel.block_columns(),
            layout: QuantizedRowLayout::new(columns),
        }
    }
}

struct Integers<P, S>(PhantomData<(P, S)>);
struct Floats<E>(PhantomData<E>);
struct Rows<R>(PhantomData<R>);

/// Addresses of the output vectors of a tile.
struct Vectors<const V: usize> {
    /// The panel of each vector.
    panels: [*const u8; V],
    /// The first row of each vector within its panel.
    lanes: [usize; V],
    /// The first output of each vector.
    outputs: [usize; V],
}

impl<P: QuantPlane, S: ScaleScheme> Kind for Integers<P, S> {
    #[inline(always)]
    fn compute<L: MatmulSimd, const V1: usize, const VN: usize>(&self, l: L, part: &MatmulShare<'_>) {
        part.after(l.some_rows::<P, S>(part)).tiles::<L, V1, VN>(l, self);
    }

    #[inline(always)]
    unsafe fn products<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        input: Input<'_>,
        shape: Shape,
        row: usize,
        vectors: &Vectors<V>,
    ) -> [[L::F; V]; M] {
        let mut sums = [[l.splat(0.0); V]; M];
        let Input::Quantized(words) = input else { return sums };
        // SAFETY: `MatmulOperands::check` ensures that the rows and panels exist.
        unsafe {
            let rows = QuantizedRow::several(words, shape.layout, row);
            l.integers::<P, S, M, V>(&vectors.panels, &vectors.lanes, &rows, shape.blocks, &mut sums);
        }
        sums
    }
}

impl<E: FloatElement> Kind for Floats<E> {
    #[inline(always)]
    unsafe fn products<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        input: Input<'_>,
        shape: Shape,
        row: usize,
        vectors: &Vectors<V>,
    ) -> [[L::F; V]; M] {
        let mut sums = [[l.splat(0.0); V]; M];
        let Input::Float { rows, stride } = input else { return sums };
        // SAFETY: `MatmulOperands::check` ensures that the rows and panels exist.
        unsafe {
            let rows = core::array::from_fn(|m| rows.as_ptr().add((row + m) * stride));
            tile::floats::<L, E, M, V>(l, &vectors.panels, &vectors.lanes, &rows, shape.columns, &mut sums);
        }
        sums
    }
}

impl<R: RowScheme> Kind for Rows<R> {
    #[inline(always)]
    fn compute<L: MatmulSimd, const V1: usize, const VN: usize>(&self, l: L, part: &MatmulShare<'_>) {
        R::without_tiles::<L, V1>(l, part).tiles::<L, V1, VN>(l, self);
    }

    #[inline(always)]
    unsafe fn products<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        input: Input<'_>,
        shape: Shape,
        row: usize,
        vectors: &Vectors<V>,
    ) -> [[L::F; V]; M] {
        let zero = [[l.splat(0.0); V]; M];
        let Input::Rotated(words) = input else { return zero };
        // SAFETY: `MatmulOperands::check` ensures that the rows and panels exist.
        unsafe {
            let rows = QuantizedRow::several(words, shape.layout, row);
            row_types::products::<L, R, M, V>(
                l,
                &vectors.panels,
                &vectors.lanes,
                &rows,
                shape.columns.div_ceil(64),
            )
        }
    }
}

/// The share of a matmul that one call computes.
pub(super) struct MatmulShare<'a> {
    pub(super) product: &'a MatmulOperands<'a>,
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    pub(super) out: Output<'a>,
}

impl<'a> MatmulShare<'a> {
    /// Panics if the share is out of bounds: the kernels read and write without bounds checks.
    pub(super) fn checked(
        product: &'a MatmulOperands<'a>,
        rows: Range<usize>,
        panels: Range<usize>,
        out: Output<'a>,
    ) -> Self {
        product.check(&rows, &panels);
        assert!(
            rows.end <= out.rows && product.outputs <= out.columns,
            "the product is larger than its table"
        );
        Self { product, rows, panels, out }
    }

    /// Returns the share without the rows before `row`.
    #[inline(always)]
    pub(super) fn after(&self, row: usize) -> Self {
        Self { rows: row..self.rows.end, panels: self.panels.clone(), ..*self }
    }
}

impl MatmulShare<'_> {
    /// Computes the share with three tile shapes: four rows times `VN` vectors, one row times `V1`, and one
    /// times one for the remainder. Each is a copy of the inner loops for every panel type, so each has only
    /// one call site.
    #[inline(always)]
    fn tiles<L: MatmulSimd, const V1: usize, const VN: usize>(&self, l: L, kind: &impl Kind) {
        let per_panel = ROWS / L::WIDTH;
        let shape = Shape::new(self.product);
        let end = self.panels.end * per_panel;
        let mut vector = self.panels.start * per_panel;
        // The vectors of a strip are read once per row or per four rows, so that they stay in L1.
        let strip = if self.rows.len() == 1 { V1 } else { V1.max(VN) };
        // If panels are whole numbers of tiles, there is no remainder, and no copy of the loops is generated
        // for it.
        let is_even = const { (ROWS / L::WIDTH).is_multiple_of(V1) && V1.is_multiple_of(VN) };
        while vector < end {
            let strip_end = end.min(vector + strip);
            let mut row = self.rows.start;
            let mut next = shape.weights.wrapping_add(strip_end / per_panel * shape.panel_bytes);
            let lines = match self.rows.len() / 4 {
                0 => 0,
                fours => (strip / per_panel * shape.panel_bytes / LINE).div_ceil(fours),
            };
            while row < self.rows.end {
                let rows = if self.rows.end - row >= 4 { 4 } else { 1 };
                // Prefetches the next strip a few cache lines at a time.
                if rows == 4 {
                    for line in 0..lines {
                        l.prefetch(next.wrapping_add(line * LINE));
                    }
                    next = next.wrapping_add(lines * LINE);
                }
                let mut at = vector;
                while at < strip_end {
                    let left = strip_end - at;
                    if rows == 4 && left >= VN {
                        self.tile::<L, 4, VN>(l, kind, shape, row, at);
                        at += VN;
                    } else if rows == 1 && left >= V1 {
                        self.tile::<L, 1, V1>(l, kind, shape, row, at);
                        at += V1;
                    } else {
                        assert!(!is_even, "a panel is not a whole number of tiles");
                        for row in row..row + rows {
                            self.tile::<L, 1, 1>(l, kind, shape, row, at);
                        }
                        at += 1;
                    }
                }
                row += rows;
            }
            vector = strip_end;
        }
    }

    /// Computes `M` rows from `row` times `V` vectors from `vector`.
    #[inline(always)]
    fn tile<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        kind: &impl Kind,
        shape: Shape,
        row: usize,
        vector: usize,
    ) {
        let per_panel = ROWS / L::WIDTH;
        let panel_of = |v: usize| (vector + v) / per_panel;
        let lane_of = |v: usize| (vector + v) % per_panel * L::WIDTH;
        let vectors: Vectors<V> = Vectors {
            // SAFETY: `MatmulOperands::check` ensures that the panels exist.
            panels: core::array::from_fn(|v| unsafe { shape.weights.add(panel_of(v) * shape.panel_bytes) }),
            lanes: core::array::from_fn(lane_of),
            outputs: core::array::from_fn(|v| panel_of(v) * ROWS + lane_of(v)),
        };
        // SAFETY: `MatmulOperands::check` ensures that the rows and panels exist.
        let sums = unsafe { kind.products::<L, M, V>(l, self.product.input, shape, row, &vectors) };
        for (m, sums) in sums.iter().enumerate() {
            for (sums, output) in sums.iter().zip(&vectors.outputs) {
                self.finish(l, *sums, row + m, *output);
            }
        }
    }

    /// Epilogue: adds bias and residual to the sums of the outputs from `output` on, and stores them.
    #[inline(always)]
    pub(super) fn finish<L: MatmulSimd>(&self, l: L, sums: L::F, row: usize, output: usize) {
        let (product, out) = (self.product, &self.out);
        if output + L::WIDTH > product.outputs {
            return self.finish_partly(l, sums, row, output);
        }
        let mut sums = sums;
        // SAFETY: `checked` ensures that the row and all outputs lie inside the output matrix, and `check`
        // that the bias is long enough; the residual has the same size as the output.
        unsafe {
            if !product.bias.is_empty() {
                sums = l.add(sums, l.floats(product.bias.as_ptr().add(output)));
            }
            if let Some((residual, stride)) = out.residual {
                sums = l.add(l.floats(residual.add(row * stride + output)), sums);
            }
            l.store(sums, out.start.add(row * out.stride + output));
        }
    }

    /// [`MatmulShare::finish`] for a vector that extends past the last output.
    fn finish_partly<L: MatmulSimd>(&self, l: L, sums: L::F, row: usize, output: usize) {
        let (product, out) = (self.product, &self.out);
        let mut lanes = [0.0; ROWS];
        // SAFETY: a vector has at most sixteen lanes.
        unsafe { l.store(sums, lanes.as_mut_ptr()) };
        for (column, lane) in (output..product.outputs).zip(lanes) {
            let mut y = lane;
            if let Some(bias) = product.bias.get(column) {
                y += bias;
            }
            // SAFETY: as in `finish`.
            unsafe {
                if let Some((residual, stride)) = out.residual {
                    y += *residual.add(row * stride + column);
                }
                *out.start.add(row * out.stride + column) = y;
            }
        }
    }
}
