//! The outer loops of a matmul: tiling over panels and rows, and the epilogue.

use core::marker::PhantomData;
use core::ops::Range;

use super::formats::{QuantPlane, ScaleScheme, by_type};
use super::row_types::{self, BookRow, ByteRow, RowScheme};
use super::simd::MatmulSimd;
use super::tile::{self, Bf16Pair, F16Pair, F32Element, FloatElement, LINE, LoopExtent, QuantizedRow};
use super::{Input, MatmulOperands, Output};
use crate::ops::quantize::QuantizedRowLayout;
use crate::panel::{PanelType, ROWS};
use crate::simd::Outlined;

/// With so many tiles for the rows of a strip, the next strip is prefetched a few cache lines at a time.
const MANY_TILES: usize = 4;

/// The shapes of the tiles of an instruction set: how many rows, and for each how many vectors of outputs. See
/// [`tile_shapes`].
pub(super) trait TileShapes {
    /// Vectors that are read once for all rows, so that they stay in L1: as many as the widest tile has.
    const STRIP: usize;

    /// Returns whether a panel of so many vectors is a whole number of tiles of any shape.
    fn is_even(per_panel: usize) -> bool;

    /// Returns the rows of the next tile if `left` remain, which is not zero.
    fn rows(left: usize) -> usize;

    /// Computes `rows` rows from `row` on with tiles of that shape; returns the first vector that remains.
    fn tiles<L: MatmulSimd, K: PanelMatmul>(
        l: L,
        kind: &K,
        share: &MatmulShare<'_>,
        shape: Shape,
        rows: Range<usize>,
        vectors: Range<usize>,
    ) -> usize;

    /// Calls [`MatmulShare::unpacked`] with the vectors of a single row.
    fn unpacked<L: MatmulSimd>(l: L, share: &MatmulShare<'_>) -> usize;
}

/// Defines [`TileShapes`]: the vectors of a single row, and for each other number of rows, in descending order, the rows
/// and their vectors. Each shape is a copy of the inner loops for every panel type.
macro_rules! tile_shapes {
    ($(#[$doc:meta])* $name:ident, 1 => $single:literal $(, $rows:literal => $vectors:literal)*) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl $crate::ops::matmul::run::TileShapes for $name {
            const STRIP: usize = {
                let (mut strip, others) = ($single, [$($vectors),*]);
                let mut index = 0;
                while index < others.len() {
                    if others[index] > strip {
                        strip = others[index];
                    }
                    index += 1;
                }
                strip
            };

            #[inline(always)]
            fn is_even(per_panel: usize) -> bool {
                per_panel.is_multiple_of($single) $(&& per_panel.is_multiple_of($vectors))*
            }

            #[inline(always)]
            fn rows(left: usize) -> usize {
                $(if left >= $rows {
                    return $rows;
                })*
                1
            }

            #[inline(always)]
            fn tiles<L: $crate::ops::matmul::simd::MatmulSimd, K: $crate::ops::matmul::run::PanelMatmul>(
                l: L,
                kind: &K,
                share: &$crate::ops::matmul::run::MatmulShare<'_>,
                shape: $crate::ops::matmul::run::Shape,
                rows: core::ops::Range<usize>,
                vectors: core::ops::Range<usize>,
            ) -> usize {
                match rows.len() {
                    $($rows => share.row_tiles::<L, K, $rows, $vectors>(l, kind, shape, rows.start, vectors),)*
                    _ => share.row_tiles::<L, K, 1, $single>(l, kind, shape, rows.start, vectors),
                }
            }

            #[inline(always)]
            fn unpacked<L: $crate::ops::matmul::simd::MatmulSimd>(
                l: L,
                share: &$crate::ops::matmul::run::MatmulShare<'_>,
            ) -> usize {
                share.unpacked::<L, $single>(l)
            }
        }
    };
}

pub(super) use tile_shapes;

/// Computes a part of a matmul with the instructions of `L`, in tiles of the shapes `T`, or `R` for W8r.
#[inline(always)]
pub(super) fn run<L: MatmulSimd, T: TileShapes, R: TileShapes>(
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
        ($kind:expr, $shapes:ident) => {
            l.outline(Task::<_, $shapes> { part: &part, kind: $kind, shapes: PhantomData })
        };
    }
    macro_rules! integers {
        ($plane:ty, $scheme:ty) => {
            compute!(Integers::<$plane, $scheme>(PhantomData), T)
        };
    }
    by_type!(product.panel, integers, {
        PanelType::F32 | PanelType::F16 | PanelType::BF16 if const { L::FLOATS.is_some() } => unreachable!(),
        PanelType::F32 => compute!(Floats::<F32Element>(PhantomData), T),
        PanelType::F16 => compute!(Floats::<F16Pair>(PhantomData), T),
        PanelType::BF16 => compute!(Floats::<Bf16Pair>(PhantomData), T),
        PanelType::W8R => compute!(Rows::<ByteRow>(PhantomData), R),
        PanelType::W4I => compute!(Rows::<BookRow>(PhantomData), T),
    })
}

/// A share of a matmul with weights of one panel type.
struct Task<'a, K, T> {
    part: &'a MatmulShare<'a>,
    kind: K,
    shapes: PhantomData<T>,
}

impl<L: MatmulSimd, K: PanelMatmul, T: TileShapes> Outlined<L> for Task<'_, K, T> {
    #[inline(always)]
    fn run(self, l: L) {
        self.kind.compute::<L, T>(l, self.part);
    }
}

/// The computation for one panel type.
pub(super) trait PanelMatmul: Sized {
    /// Computes a share.
    #[inline(always)]
    fn compute<L: MatmulSimd, T: TileShapes>(&self, l: L, part: &MatmulShare<'_>) {
        part.tiles::<L, T>(l, self);
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
pub(super) struct Shape {
    weights: *const u8,
    panel_bytes: usize,
    columns: usize,
    /// Blocks per panel.
    blocks: usize,
    /// Layout of quantized rows.
    layout: QuantizedRowLayout,
    /// Whether tiles prefetch the weights of the next strip.
    prefetch: bool,
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
            prefetch: false,
        }
    }
}

struct Integers<P, S>(PhantomData<(P, S)>);
struct Floats<E>(PhantomData<E>);
struct Rows<R>(PhantomData<R>);

/// Addresses of the output vectors of a tile.
pub(super) struct Vectors<const V: usize> {
    /// The panel of each vector.
    panels: [*const u8; V],
    /// The first row of each vector within its panel.
    lanes: [usize; V],
    /// The first output of each vector.
    outputs: [usize; V],
}

impl<P: QuantPlane, S: ScaleScheme> PanelMatmul for Integers<P, S> {
    #[inline(always)]
    fn compute<L: MatmulSimd, T: TileShapes>(&self, l: L, part: &MatmulShare<'_>) {
        part.after(l.some_rows::<P, S>(part)).tiles::<L, T>(l, self);
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
            let extent = LoopExtent { count: shape.blocks, prefetch: shape.prefetch };
            l.integers::<P, S, M, V>(&vectors.panels, &vectors.lanes, &rows, extent, &mut sums);
        }
        sums
    }
}

impl<E: FloatElement> PanelMatmul for Floats<E> {
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
            let extent = LoopExtent { count: shape.columns, prefetch: shape.prefetch };
            tile::floats::<L, E, M, V>(l, &vectors.panels, &vectors.lanes, &rows, extent, &mut sums);
        }
        sums
    }
}

impl<R: RowScheme> PanelMatmul for Rows<R> {
    #[inline(always)]
    fn compute<L: MatmulSimd, T: TileShapes>(&self, l: L, part: &MatmulShare<'_>) {
        R::without_tiles::<L, T>(l, part).tiles::<L, T>(l, self);
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
                LoopExtent { count: shape.columns.div_ceil(64), prefetch: shape.prefetch },
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
    /// Computes the share with the tiles of `T`, and with one row times one vector for the remainder.
    #[inline(always)]
    fn tiles<L: MatmulSimd, T: TileShapes>(&self, l: L, kind: &impl PanelMatmul) {
        let per_panel = ROWS / L::WIDTH;
        let mut shape = Shape::new(self.product);
        let end = self.panels.end * per_panel;
        let strip = T::STRIP;
        let mut vector = self.panels.start * per_panel;
        // The next strip is prefetched: while the first of a few rows are computed, or a few cache lines for each tile of
        // many rows.
        let tiles = self.rows.len() / T::rows(self.rows.len());
        let lines = match tiles {
            0..MANY_TILES => 0,
            tiles => (strip.div_ceil(per_panel) * shape.panel_bytes / LINE).div_ceil(tiles),
        };
        while vector < end {
            let strip_end = end.min(vector + strip);
            let mut row = self.rows.start;
            let mut next = shape.weights.wrapping_add(strip_end / per_panel * shape.panel_bytes);
            while row < self.rows.end {
                for line in 0..lines {
                    l.prefetch(next.wrapping_add(line * LINE));
                }
                next = next.wrapping_add(lines * LINE);
                let rows = row..row + T::rows(self.rows.end - row);
                shape.prefetch = lines == 0 && row == self.rows.start;
                row = rows.end;
                let rest = T::tiles(l, kind, self, shape, rows.clone(), vector..strip_end);
                // If panels are whole numbers of tiles, there is no remainder, and no copy of the loops is generated
                // for it.
                if T::is_even(per_panel) {
                    assert!(rest == strip_end, "a panel is not a whole number of tiles");
                } else {
                    for vector in rest..strip_end {
                        for row in rows.clone() {
                            self.tile::<L, 1, 1>(l, kind, shape, row, vector);
                        }
                    }
                }
            }
            vector = strip_end;
        }
    }

    /// Computes `M` rows from `row` on with tiles of `V` vectors; returns the first vector that remains.
    #[inline(always)]
    pub(super) fn row_tiles<L: MatmulSimd, K: PanelMatmul, const M: usize, const V: usize>(
        &self,
        l: L,
        kind: &K,
        shape: Shape,
        row: usize,
        vectors: Range<usize>,
    ) -> usize {
        let mut vector = vectors.start;
        while vectors.end - vector >= V {
            self.tile::<L, M, V>(l, kind, shape, row, vector);
            vector += V;
        }
        vector
    }

    /// Computes `M` rows from `row` times `V` vectors from `vector`.
    #[inline(always)]
    fn tile<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        kind: &impl PanelMatmul,
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
        if const { !L::COMPACT } {
            for (m, sums) in sums.iter().enumerate() {
                for (sums, output) in sums.iter().zip(&vectors.outputs) {
                    self.finish(l, *sums, row + m, *output);
                }
            }
            return;
        }
        let mut lanes = [[[0.0; ROWS]; V]; M];
        for (lanes, sums) in lanes.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            // SAFETY: a vector has at most sixteen lanes.
            unsafe { l.store(*sums, lanes.as_mut_ptr()) };
        }
        self.finish_tile(lanes.as_flattened(), L::WIDTH, row, &vectors.outputs);
    }

    /// The epilogue of a tile if code is compact: one function for all panel types, shapes and instruction sets, since it
    /// would be larger than the inner loops. Each vector of `sums` has `width` lanes.
    #[inline(never)]
    fn finish_tile(&self, sums: &[[f32; ROWS]], width: usize, row: usize, outputs: &[usize]) {
        for (sums, row) in sums.chunks_exact(outputs.len()).zip(row..) {
            for (sums, output) in sums.iter().zip(outputs) {
                self.finish_lanes(&sums[..width.min(ROWS)], row, *output);
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
        let mut lanes = [0.0; ROWS];
        // SAFETY: a vector has at most sixteen lanes.
        unsafe { l.store(sums, lanes.as_mut_ptr()) };
        self.finish_lanes(&lanes[..L::WIDTH], row, output);
    }

    /// [`MatmulShare::finish`] for the sums of consecutive outputs, of which some may be past the last output.
    fn finish_lanes(&self, sums: &[f32], row: usize, output: usize) {
        let count = sums.len().min(self.product.outputs.saturating_sub(output));
        let (fours, rest) = sums[..count].as_chunks();
        // SAFETY: `checked` ensures that the row and these outputs lie inside the output matrix.
        unsafe {
            for (sums, output) in fours.iter().zip((output..).step_by(4)) {
                self.finish_some::<4>(*sums, row, output);
            }
            for (sum, output) in rest.iter().zip(output + 4 * fours.len()..) {
                self.finish_some([*sum], row, output);
            }
        }
    }

    /// # Safety
    /// The `N` outputs from `output` on must exist.
    #[inline(always)]
    unsafe fn finish_some<const N: usize>(&self, sums: [f32; N], row: usize, output: usize) {
        let (bias, out) = (self.product.bias, &self.out);
        let mut sums = sums;
        if let Some(bias) = bias.get(output..output + N) {
            for (sum, bias) in sums.iter_mut().zip(bias) {
                *sum += bias;
            }
        }
        // SAFETY: the row and the outputs exist (see `# Safety`); the residual has the same size as the output.
        unsafe {
            if let Some((residual, stride)) = out.residual {
                let residual = residual.add(row * stride + output).cast::<[f32; N]>().read_unaligned();
                for (sum, residual) in sums.iter_mut().zip(residual) {
                    *sum += residual;
                }
            }
            out.start.add(row * out.stride + output).cast::<[f32; N]>().write_unaligned(sums);
        }
    }
}
