//! Matmul of several rows at a time, for processors on which broadcasting four integers to a vector takes a
//! separate instruction: the broadcast is done once for all panels, along with the other inputs of a row.

use core::arch::x86_64::{__m256, __m256i, _mm256_set1_epi32};
use core::mem::MaybeUninit;
use core::ops::Range;

use super::avx2::Integers;
use super::formats::{QuantPlane, RaisedCodebookValues, ScaleScheme};
use super::row_types::{BookRow, RowScheme};
use super::run::MatmulShare;
use super::simd::MatmulSimd;
use super::tile::{
    HalfBlock, LINE, QuantizedRow, block_bytes, eight_groups, row_sum, scaled_sum, sixteen_groups,
};
use super::{Input, MatmulOperands};
use crate::ops::quantize::QuantizedRowLayout;
use crate::panel::ROWS as PANEL_ROWS;

/// Rows per tile: the cost of unpacking weights is shared by all of them.
const ROWS: usize = 8;
/// Minimum number of panels; for fewer, the broadcast does not pay off.
const MIN_PANELS: usize = 4;
/// Panels whose accumulators are kept while the remaining columns are broadcast.
const PANELS: usize = 32;

/// Columns that are broadcast at a time: they take up to three quarters of a 32 KiB L1 cache.
const COLUMNS: usize = 320;

/// Upper bound on the vectors for these columns: per sixteen columns, four of integers, a scale, a sum and a
/// scaled sum.
const VECTORS: usize = COLUMNS / 16 * (4 + 3) * ROWS;

/// Output rows per vector.
const WIDTH: usize = 8;
/// Vectors per panel.
const PER_PANEL: usize = PANEL_ROWS / WIDTH;

/// How a type is multiplied with [`ROWS`] broadcast rows.
pub(super) trait Broadcast<N: Integers> {
    /// The accumulator of an output.
    type Sum: Copy;
    /// Macro-blocks of 64 columns per block.
    const MACROS: usize;
    /// Bytes per block.
    const BYTES: usize;
    /// Vectors that a block of the rows is broadcast to.
    const VECTORS: usize;

    fn zero(n: N) -> Self::Sum;

    /// Broadcasts the block of a row whose first column is `column`. The vectors of the rows are interleaved;
    /// `to` points at the first vector of this row.
    ///
    /// # Safety
    /// The row must be readable for the columns of the block, and `to` writable at every [`ROWS`]-th of
    /// [`Broadcast::VECTORS`] vectors.
    unsafe fn broadcast(n: N, row: QuantizedRow, column: usize, to: *mut __m256i);

    /// Adds the products of a block.
    ///
    /// # Safety
    /// `block` must be readable for [`Broadcast::BYTES`], `rows` for the [`Broadcast::VECTORS`] of its columns, and
    /// `lane + WIDTH` must be at most 16.
    unsafe fn add(n: N, block: *const u8, lane: usize, rows: *const __m256i, sums: &mut [Self::Sum; ROWS]);

    /// Returns the output of a row; `end` is where the blocks of the panel end.
    ///
    /// # Safety
    /// For row types, the row must be a whole row, and `end` readable for the sixteen scales of the panel.
    unsafe fn finish(n: N, sum: Self::Sum, row: QuantizedRow, end: *const u8, lane: usize) -> __m256;
}

/// Types whose sub-blocks have scales. For each sub-block, a row has its integers, four to a vector, the
/// initial value of the dot product, its scale and its scaled sum.
pub(super) struct Blocks<P, S>(core::marker::PhantomData<(P, S)>);

impl<P: QuantPlane, S: ScaleScheme> Blocks<P, S> {
    /// Vectors of a row in a sub-block before the initial value, which is present if OFFSET is not zero.
    const START: usize = S::SUB / 4;
    const SCALE: usize = if P::OFFSET == 0 { Self::START } else { Self::START + 1 };
    const SCALED_SUM: usize = Self::SCALE + 1;
    /// Vectors of a row per sub-block.
    const SUB_VECTORS: usize = if S::MIN { Self::SCALED_SUM + 1 } else { Self::SCALED_SUM };
    /// Sub-blocks per macro-block.
    const SUBS: usize = 64 / S::SUB;

    /// Returns the initial value of the dot products of row `m`.
    ///
    /// # Safety
    /// `rows` must be readable for the vectors of all rows in a sub-block, and `m < ROWS`.
    #[inline(always)]
    unsafe fn start<N: Integers>(n: N, rows: *const __m256i, m: usize) -> __m256i {
        // SAFETY: `rows` has the vectors of a sub-block (see `# Safety`); with an offset, one is the initial value.
        if P::OFFSET == 0 { word(n, 0) } else { unsafe { *rows.add(Self::START * ROWS + m) } }
    }

    /// Adds the products of half a macro-block.
    ///
    /// # Safety
    /// As for [`Broadcast::add`]; `rows` are the vectors of the columns of the half.
    #[inline(always)]
    unsafe fn add_half<N: Integers>(
        n: N,
        block: *const u8,
        at: HalfBlock,
        lane: usize,
        rows: *const __m256i,
        sums: &mut [__m256; ROWS],
    ) {
        // SAFETY: `block` has the half, and `rows` the vectors of its columns (see `# Safety`).
        unsafe {
            let mut dots = [Integers::start(n, word(n, 0)); ROWS];
            eight_groups!(G => {
                let rows = rows.add(const { G / (S::SUB / 4) } * Self::SUB_VECTORS * ROWS);
                if const { G.is_multiple_of(S::SUB / 4) } {
                    for (m, dot) in dots.iter_mut().enumerate() {
                        *dot = Integers::start(n, Self::start::<N>(n, rows, m));
                    }
                }
                let weights = P::group::<N, G>(n, block.add(at.lines + 4 * lane), at.half);
                for (m, dot) in dots.iter_mut().enumerate() {
                    let a = *rows.add(const { G % (S::SUB / 4) } * ROWS + m);
                    *dot = Integers::dot_small(n, *dot, weights, a);
                    if const { (G + 1).is_multiple_of(P::SETTLE) || (G + 1).is_multiple_of(S::SUB / 4) } {
                        *dot = Integers::settle(n, *dot);
                    }
                }
                if const { (G + 1).is_multiple_of(S::SUB / 4) } {
                    let place = at.scales::<P, S>(block, lane, const { G / (S::SUB / 4) });
                    let scale = S::scale(n, place);
                    for m in 0..ROWS {
                        let dot = Integers::finish(n, dots[m], Self::start::<N>(n, rows, m));
                        let row_scale = n.floats(rows.add(Self::SCALE * ROWS + m).cast());
                        sums[m] = n.fma(dot, n.mul(scale, row_scale), sums[m]);
                    }
                    if S::MIN {
                        let min = S::min(n, place);
                        for (m, sum) in sums.iter_mut().enumerate() {
                            let scaled = n.floats(rows.add(Self::SCALED_SUM * ROWS + m).cast());
                            *sum = n.fma(min, scaled, *sum);
                        }
                    }
                }
            });
        }
    }
}

impl<N: Integers, P: QuantPlane, S: ScaleScheme> Broadcast<N> for Blocks<P, S> {
    type Sum = __m256;
    const MACROS: usize = S::MACROS;
    const BYTES: usize = block_bytes::<P, S>();
    const VECTORS: usize = S::MACROS * Self::SUBS * Self::SUB_VECTORS * ROWS;

    #[inline(always)]
    fn zero(n: N) -> Self::Sum {
        n.splat(0.0)
    }

    #[inline(always)]
    unsafe fn broadcast(n: N, row: QuantizedRow, column: usize, to: *mut __m256i) {
        for sub in 0..S::MACROS * Self::SUBS {
            // SAFETY: the row has the columns of the block, and `to` its vectors (see `Broadcast::broadcast`).
            unsafe {
                let (column, to) = (column + sub * S::SUB, to.add(sub * Self::SUB_VECTORS * ROWS));
                for group in 0..S::SUB / 4 {
                    to.add(group * ROWS).write(word(n, *row.values.add(column / 4 + group)));
                }
                if P::OFFSET != 0 {
                    to.add(Self::START * ROWS).write(word(n, -P::OFFSET * row_sum::<S>(row, column)));
                }
                to.add(Self::SCALE * ROWS).write(word(n, (*row.scales.add(column / 32)).to_bits() as i32));
                if S::MIN {
                    to.add(Self::SCALED_SUM * ROWS)
                        .write(word(n, scaled_sum::<S>(row, column).to_bits() as i32));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn add(n: N, block: *const u8, lane: usize, rows: *const __m256i, sums: &mut [Self::Sum; ROWS]) {
        for mac in 0..S::MACROS {
            // SAFETY: `block` has macro-block `mac`, and `rows` the vectors of its columns (see `Broadcast::add`).
            unsafe {
                let rows = rows.add(mac * Self::SUBS * Self::SUB_VECTORS * ROWS);
                let second = rows.add(Self::SUBS / 2 * Self::SUB_VECTORS * ROWS);
                Self::add_half(n, block, HalfBlock::new::<P, S>(mac, 0), lane, rows, sums);
                Self::add_half(n, block, HalfBlock::new::<P, S>(mac, 1), lane, second, sums);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish(_: N, sum: Self::Sum, _: QuantizedRow, _: *const u8, _: usize) -> __m256 {
        sum
    }
}

impl<N: Integers> Broadcast<N> for BookRow {
    type Sum = N::Dot;
    const MACROS: usize = 1;
    const BYTES: usize = <Self as RowScheme>::BYTES;
    /// Four vectors of integers and the initial value, for each of four factors.
    const VECTORS: usize = 4 * 5 * ROWS;

    #[inline(always)]
    fn zero(n: N) -> Self::Sum {
        MatmulSimd::start(n, 0)
    }

    #[inline(always)]
    unsafe fn broadcast(n: N, row: QuantizedRow, column: usize, to: *mut __m256i) {
        for sub in 0..4 {
            // SAFETY: the row has 64 columns from `column` on, and `to` twenty vectors (see `Broadcast::broadcast`).
            unsafe {
                let (column, to) = (column + 16 * sub, to.add(sub * 5 * ROWS));
                for group in 0..4 {
                    to.add(group * ROWS).write(word(n, *row.values.add(column / 4 + group)));
                }
                to.add(4 * ROWS).write(word(n, N::short(-RaisedCodebookValues::OFFSET * row.sum(column))));
            }
        }
    }

    #[inline(always)]
    unsafe fn add(n: N, block: *const u8, lane: usize, rows: *const __m256i, sums: &mut [Self::Sum; ROWS]) {
        // SAFETY: `block` has eight lines and half a line of factors, `rows` twenty vectors per row (see
        // `Broadcast::add`).
        unsafe {
            let words = n.words(block.add(8 * LINE + 2 * lane));
            let mut dots = [Integers::start_short(n, *rows); ROWS];
            sixteen_groups!(G => {
                let rows = rows.add(const { G / 4 * 5 } * ROWS);
                let weights = RaisedCodebookValues::group::<N, { G % 8 }>(n, block.add(4 * lane), G / 8);
                for (m, dot) in dots.iter_mut().enumerate() {
                    if const { G.is_multiple_of(4) } {
                        *dot = Integers::start_short(n, *rows.add(4 * ROWS + m));
                    }
                    *dot = Integers::dot_small(n, *dot, weights, *rows.add(const { G % 4 } * ROWS + m));
                }
                if const { G % 4 == 3 } {
                    let factors = n.factors::<{ G as u32 / 4 * 4 }>(words);
                    for m in 0..ROWS {
                        sums[m] = Integers::weigh(n, sums[m], dots[m], factors);
                    }
                }
            });
        }
    }

    #[inline(always)]
    unsafe fn finish(n: N, sum: Self::Sum, row: QuantizedRow, end: *const u8, lane: usize) -> __m256 {
        // SAFETY: `row` is a whole rotated row, and `end` points at sixteen bf16 (see `Broadcast::finish`).
        let scale = unsafe { n.mul(n.brains(end.add(2 * lane)), n.splat(row.scale())) };
        n.mul(MatmulSimd::finish(n, sum, 0), scale)
    }
}

impl MatmulShare<'_> {
    /// Computes several rows at a time; returns the first remaining row.
    #[inline(always)]
    pub(super) fn broadcast<N: Integers, K: Broadcast<N>>(&self, n: N) -> usize {
        let mut row = self.rows.start;
        if self.panels.len() < MIN_PANELS || self.product.columns == 0 {
            return row;
        }
        while self.rows.end - row >= ROWS {
            self.broadcast_rows::<N, K>(n, row);
            row += ROWS;
        }
        row
    }

    /// Computes [`ROWS`] rows from row `first` on.
    #[inline(always)]
    fn broadcast_rows<N: Integers, K: Broadcast<N>>(&self, n: N, first: usize) {
        let (Input::Quantized(words) | Input::Rotated(words)) = self.product.input else { return };
        let shape = Shape::new::<N, K>(self.product);
        let mut broadcast = MaybeUninit::<[__m256i; VECTORS]>::uninit();
        let broadcast: *mut __m256i = broadcast.as_mut_ptr().cast();
        let mut kept = [const { MaybeUninit::<[K::Sum; ROWS]>::uninit() }; PANELS * PER_PANEL];
        // SAFETY: `MatmulOperands::check` ensures that the rows and panels exist; broadcast vectors and kept sums
        // are written before they are read.
        unsafe {
            let layout = QuantizedRowLayout::new(self.product.columns);
            let rows = QuantizedRow::several::<ROWS>(words, layout, first);
            for strip in self.panels.clone().step_by(PANELS) {
                let panels = strip..self.panels.end.min(strip + PANELS);
                for start in (0..shape.blocks).step_by(shape.at_once) {
                    let blocks = start..shape.blocks.min(start + shape.at_once);
                    for block in blocks.clone() {
                        let to = broadcast.add((block - start) * K::VECTORS);
                        for (m, row) in rows.into_iter().enumerate() {
                            K::broadcast(n, row, block * K::MACROS * 64, to.add(m));
                        }
                    }
                    let tile = BroadcastRows { first, rows, blocks, vectors: broadcast, shape };
                    for (panel, kept) in panels.clone().zip(kept.as_chunks_mut::<PER_PANEL>().0) {
                        self.broadcast_panel::<N, K>(n, &tile, panel, kept);
                    }
                }
            }
        }
    }

    /// Adds the products of a panel with the broadcast blocks to the kept sums, and stores them after the last block.
    ///
    /// # Safety
    /// The panel must exist, and `tile` must hold the vectors of its blocks; unless its blocks are the first, `kept` must
    /// have been written.
    #[inline(always)]
    unsafe fn broadcast_panel<N: Integers, K: Broadcast<N>>(
        &self,
        n: N,
        tile: &BroadcastRows,
        panel: usize,
        kept: &mut [MaybeUninit<[K::Sum; ROWS]>; PER_PANEL],
    ) {
        let BroadcastRows { first, blocks, shape, .. } = tile;
        let weights = self.product.weights.as_ptr().wrapping_add(panel * shape.panel_bytes);
        // The first rows use the weights up faster than they arrive: those of the next panel are prefetched.
        let prefetch = *first == self.rows.start;
        for (kept, lane) in kept.iter_mut().zip([0, WIDTH]) {
            // SAFETY: the panel has the blocks, `tile` their vectors, and `kept` is written (see `# Safety`).
            unsafe {
                let mut sums = if blocks.start > 0 { kept.assume_init() } else { [K::zero(n); ROWS] };
                for block in blocks.clone() {
                    if prefetch && lane == 0 {
                        let next = weights.wrapping_add(shape.panel_bytes + block * K::BYTES);
                        (0..K::BYTES).step_by(LINE).for_each(|at| n.prefetch(next.wrapping_add(at)));
                    }
                    let vectors = tile.vectors.add((block - blocks.start) * K::VECTORS);
                    K::add(n, weights.add(block * K::BYTES), lane, vectors, &mut sums);
                }
                if blocks.end < shape.blocks {
                    kept.write(sums);
                    continue;
                }
                let end = weights.add(shape.blocks * K::BYTES);
                for (m, sum) in sums.into_iter().enumerate() {
                    let product = K::finish(n, sum, tile.rows[m], end, lane);
                    self.finish(n, product, first + m, panel * PANEL_ROWS + lane);
                }
            }
        }
    }
}

/// Rows of which some blocks are broadcast.
struct BroadcastRows {
    /// The first row.
    first: usize,
    rows: [QuantizedRow; ROWS],
    /// The blocks whose vectors are broadcast.
    blocks: Range<usize>,
    vectors: *const __m256i,
    shape: Shape,
}

/// Broadcasts four bytes to every lane.
#[inline(always)]
fn word<N: Integers>(_: N, four: i32) -> __m256i {
    // SAFETY: the token proves that the processor has the instruction.
    unsafe { _mm256_set1_epi32(four) }
}

/// Sizes of a matmul.
#[derive(Clone, Copy)]
struct Shape {
    panel_bytes: usize,
    /// Blocks per panel.
    blocks: usize,
    /// Blocks that are broadcast at a time.
    at_once: usize,
}

impl Shape {
    #[inline(always)]
    fn new<N: Integers, K: Broadcast<N>>(product: &MatmulOperands<'_>) -> Self {
        let max_blocks = const { COLUMNS / (64 * K::MACROS) };
        const { assert!(COLUMNS / (64 * K::MACROS) * K::VECTORS <= VECTORS) };
        let blocks = product.columns.div_ceil(64 * K::MACROS);
        let panel_bytes = product.panel.panel_bytes(product.columns).unwrap_or(0);
        Self { panel_bytes, blocks, at_once: blocks.div_ceil(blocks.div_ceil(max_blocks)) }
    }
}
