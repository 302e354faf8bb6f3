//! Row types: accumulators of all columns stay in tiles, two tiles of rows times two panels.

use core::mem::MaybeUninit;
use core::ops::Range;

use super::super::row_types::{BookRow, ByteRow, RowScheme};
use super::super::run::MatmulShare;
use super::super::simd::MatmulSimd;
use super::super::tile::{LINE, MacroBlockLines, QuantizedRow};
use super::super::{Input, MatmulOperands};
use super::{GROUP, groups};
use crate::ops::amx_tiles::{self as tiles, Shapes, Tiles};
use crate::ops::quantize::QuantizedRowLayout;
use crate::panel::ROWS;
use crate::simd::Avx512;

/// Macro-blocks of 64 columns that are multiplied with all rows before the next: two panels of them fit into
/// L1.
const BLOCKS: usize = 16;
/// Maximum number of columns for which two tiles of rows stay in L1 while all panels are read.
const NEAR: usize = 1536;
/// Bytes of a tile.
const TILE: usize = tiles::ROWS * LINE;
/// Rows of two tiles.
const TWO: usize = 2 * tiles::ROWS;

/// The accumulators of two tiles of rows times two panels.
type Sums = [[[i32; ROWS]; tiles::ROWS]; 4];

/// The accumulators of a group, aligned to cache lines.
#[repr(C, align(64))]
struct AllSums([Sums; GROUP / TWO]);

/// A row type whose macro-blocks are available as lines of signed bytes.
pub(super) trait ByteLines: RowScheme {
    /// Whether the packed lines are used directly, without unpacking.
    const IN_PLACE: bool;

    /// Returns the lines of macro-block `index` of a panel, which are in `chunk` if they had to be unpacked.
    ///
    /// # Safety
    /// The panel must have the block, and `chunk` must have room for [`BLOCKS`] macro-blocks of bytes.
    unsafe fn lines(l: Avx512, panel: *const u8, index: usize, chunk: *mut u8) -> *const u8;

    /// Unpacks some macro-blocks into `chunk`, if needed.
    ///
    /// # Safety
    /// As for `lines`, for every block.
    unsafe fn prepare(l: Avx512, panel: *const u8, blocks: Range<usize>, chunk: *mut u8);
}

impl ByteLines for ByteRow {
    const IN_PLACE: bool = true;

    #[inline(always)]
    unsafe fn lines(_: Avx512, panel: *const u8, index: usize, _: *mut u8) -> *const u8 {
        // SAFETY: the panel has block `index` (see `ByteLines::lines`).
        unsafe { panel.add(index * Self::BYTES) }
    }

    #[inline(always)]
    unsafe fn prepare(_: Avx512, _: *const u8, _: Range<usize>, _: *mut u8) {}
}

impl ByteLines for BookRow {
    const IN_PLACE: bool = false;

    #[inline(always)]
    unsafe fn lines(_: Avx512, _: *const u8, index: usize, chunk: *mut u8) -> *const u8 {
        // SAFETY: `chunk` has room for `BLOCKS` blocks (see `ByteLines::lines`), and the slot is below that.
        unsafe { chunk.add(index % BLOCKS * ByteRow::BYTES) }
    }

    #[inline(always)]
    unsafe fn prepare(l: Avx512, panel: *const u8, blocks: Range<usize>, chunk: *mut u8) {
        for index in blocks {
            // SAFETY: the panel has block `index`, and `chunk` a slot for it (see `ByteLines::prepare`).
            unsafe {
                Self::unpack(
                    l,
                    panel.add(index * Self::BYTES),
                    0,
                    chunk.add(index % BLOCKS * ByteRow::BYTES),
                );
            }
        }
    }
}

/// Computes a share of a matmul with a row type.
///
/// # Safety
/// The processor must have AMX, and the part must have been checked.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run<W: ByteLines>(l: Avx512, part: &MatmulShare<'_>) {
    let near = W::IN_PLACE && part.product.columns <= NEAR;
    for rows in groups(part.rows.clone(), TWO, if near { TWO } else { GROUP }) {
        // SAFETY: the processor has AMX, and `part` was checked; `rows` is a part of its rows (see `# Safety`).
        unsafe { Group { part, rows }.run::<W>(l) }
    }
}

/// Rows that are multiplied with one part of the weights after the other: whole pairs of tiles, or less than
/// one pair.
struct Group<'a> {
    part: &'a MatmulShare<'a>,
    rows: Range<usize>,
}

impl Group<'_> {
    /// Computes all rows of the group.
    ///
    /// # Safety
    /// The processor must have AMX. The share must have been checked, and contain the rows.
    #[inline(always)]
    unsafe fn run<W: ByteLines>(&self, l: Avx512) {
        let first = self.rows.len().min(tiles::ROWS);
        let second = self.rows.len().min(TWO) - first;
        let mut shapes =
            Shapes::NONE.with(4, first, LINE).with(6, tiles::ROWS, LINE).with(7, tiles::ROWS, LINE);
        shapes = shapes.with(0, first, LINE).with(1, first, LINE);
        if second > 0 {
            shapes = shapes.with(5, second, LINE).with(2, second, LINE).with(3, second, LINE);
        }
        let mut panel = self.part.panels.start;
        // SAFETY: the processor has AMX, and the share, which has the panels from `panel` on, was checked (see
        // `# Safety`). Rows of the second tile are accessed only if it has a shape.
        unsafe {
            let tiles = Tiles::with_shapes(&shapes);
            while panel < self.part.panels.end {
                let two = panel + 2 <= self.part.panels.end;
                match (second > 0, two) {
                    (false, false) => self.panels::<W, 1, 1>(l, &tiles, panel),
                    (false, true) => self.panels::<W, 1, 2>(l, &tiles, panel),
                    (true, false) => self.panels::<W, 2, 1>(l, &tiles, panel),
                    (true, true) => self.panels::<W, 2, 2>(l, &tiles, panel),
                }
                panel += if two { 2 } else { 1 };
            }
        }
    }

    /// Computes all rows times `P` panels from `panel` on, with `R` tiles of rows at a time.
    ///
    /// # Safety
    /// As for `run`, whose `tiles` these are, with a second tile of rows if `R` is 2. The share must have the panels.
    #[inline(always)]
    unsafe fn panels<W: ByteLines, const R: usize, const P: usize>(
        &self,
        l: Avx512,
        tiles: &Tiles,
        panel: usize,
    ) {
        let product = self.part.product;
        let blocks = product.columns.div_ceil(64);
        let panel_bytes = product.panel.panel_bytes(product.columns).unwrap_or(0);
        let mut chunk = MaybeUninit::<MacroBlockLines<{ 2 * BLOCKS * 16 }>>::uninit();
        let mut sums = MaybeUninit::<AllSums>::uninit();
        let (chunk, sums) = (chunk.as_mut_ptr().cast::<u8>(), sums.as_mut_ptr().cast::<Sums>());
        let chunks = [chunk, chunk.wrapping_add(BLOCKS * ByteRow::BYTES)];
        // SAFETY: the share was checked, so that the rows and the `P` panels from `panel` on exist (see `# Safety`);
        // sums are read only after an earlier chunk has written them.
        unsafe {
            let panels =
                core::array::from_fn::<_, P, _>(|p| product.weights.as_ptr().add((panel + p) * panel_bytes));
            for start in (0..blocks).step_by(BLOCKS) {
                let here = start..blocks.min(start + BLOCKS);
                for p in 0..P {
                    W::prepare(l, panels[p], here.clone(), chunks[p]);
                }
                for (pair, row) in self.rows.clone().step_by(TWO).enumerate() {
                    let sums = sums.add(pair).cast::<u8>();
                    resume::<R, P>(tiles, start > 0, sums);
                    let (rows, stride) = row_bytes(product, row);
                    for block in here.clone() {
                        let rows = rows.add(64 * block);
                        tiles.load::<4>(rows, stride);
                        tiles.load_lines::<6>(W::lines(l, panels[0], block, chunks[0]));
                        tiles.dot::<0, 4, 6>();
                        if P == 2 {
                            tiles.load_lines::<7>(W::lines(l, panels[P - 1], block, chunks[1]));
                            tiles.dot::<1, 4, 7>();
                        }
                        if R == 2 {
                            tiles.load::<5>(rows.add(tiles::ROWS * stride), stride);
                            tiles.dot::<2, 5, 6>();
                        }
                        if R == 2 && P == 2 {
                            tiles.dot::<3, 5, 7>();
                        }
                    }
                    keep::<R, P>(tiles, sums);
                }
            }
            let scales = panels.map(|weights| W::scale(l, weights.add(blocks * W::BYTES), 0));
            let is_whole = (panel + P) * ROWS <= product.outputs;
            match (is_whole, product.bias.is_empty(), self.part.out.residual) {
                (true, true, None) => self.finish::<P, false, false>(l, panel, scales, sums),
                (true, false, None) => self.finish::<P, true, false>(l, panel, scales, sums),
                (true, true, Some(_)) => self.finish::<P, false, true>(l, panel, scales, sums),
                (true, false, Some(_)) => self.finish::<P, true, true>(l, panel, scales, sums),
                (false, ..) => self.finish_partly(l, panel, scales, sums),
            }
        }
    }

    /// Scales the sums with `P` whole panels from `panel` on, and adds bias and residual if present. There
    /// are no branches per row, so that the products of the next panels can overlap.
    ///
    /// # Safety
    /// The share must have been checked; its outputs must include those of the panels. `sums` must hold those
    /// of all rows.
    #[inline(always)]
    unsafe fn finish<const P: usize, const BIAS: bool, const RESIDUAL: bool>(
        &self,
        l: Avx512,
        panel: usize,
        scales: [<Avx512 as MatmulSimd>::F; P],
        sums: *const Sums,
    ) {
        let MatmulShare { product, out, .. } = self.part;
        let mut bias = scales;
        // SAFETY: the rows and the outputs of whole panels lie inside the checked share, also in the bias and the
        // residual; `sums` holds those of all rows (see `# Safety`).
        unsafe {
            if BIAS {
                for (p, bias) in bias.iter_mut().enumerate() {
                    *bias = MatmulSimd::floats(l, product.bias.as_ptr().add((panel + p) * ROWS));
                }
            }
            let (residual, residual_stride) = out.residual.unwrap_or((out.start, out.stride));
            for (index, row) in self.rows.clone().enumerate() {
                let row_scale = l.splat(row_scale(product, row));
                let tiles = sums.add(index / TWO);
                for p in 0..P {
                    let tile = index % TWO / tiles::ROWS * 2 + p;
                    let output = (panel + p) * ROWS;
                    let sum = l.floats(&(*tiles)[tile][index % tiles::ROWS]);
                    let mut sum = l.mul(sum, l.mul(scales[p], row_scale));
                    if BIAS {
                        sum = l.add(sum, bias[p]);
                    }
                    if RESIDUAL {
                        sum = l.add(MatmulSimd::floats(l, residual.add(row * residual_stride + output)), sum);
                    }
                    l.store(sum, out.start.add(row * out.stride + output));
                }
            }
        }
    }

    /// [`Group::finish`] for a matrix that ends within a panel.
    ///
    /// # Safety
    /// As for `finish`, but the last panel may extend past the outputs.
    #[inline(always)]
    unsafe fn finish_partly<const P: usize>(
        &self,
        l: Avx512,
        panel: usize,
        scales: [<Avx512 as MatmulSimd>::F; P],
        sums: *const Sums,
    ) {
        for (index, row) in self.rows.clone().enumerate() {
            for (p, scale) in scales.iter().enumerate() {
                let tile = index % TWO / tiles::ROWS * 2 + p;
                // SAFETY: `sums` holds those of all rows, and `row` lies inside the checked share (see `# Safety`).
                unsafe {
                    let sum = &(*sums.add(index / TWO))[tile][index % tiles::ROWS];
                    let row_scale = l.splat(row_scale(self.part.product, row));
                    let sum = l.mul(l.floats(sum), l.mul(*scale, row_scale));
                    self.part.finish(l, sum, row, (panel + p) * ROWS);
                }
            }
        }
    }
}

/// Returns the scale of a quantized row.
///
/// # Safety
/// The product must have been checked for `row`: its input is rotated and has the row.
#[inline(always)]
unsafe fn row_scale(product: &MatmulOperands<'_>, row: usize) -> f32 {
    // SAFETY: `row` lies inside the checked input (see `# Safety`), so it is a whole rotated row of `words`.
    unsafe {
        QuantizedRow::new(row_bytes(product, row).0.cast(), QuantizedRowLayout::new(product.columns)).scale()
    }
}

/// Returns the bytes of a row, and the distance between rows in bytes.
#[inline(always)]
fn row_bytes(product: &MatmulOperands<'_>, row: usize) -> (*const u8, usize) {
    let Input::Rotated(words) = product.input else { return (core::ptr::null(), 0) };
    let words_of_row = QuantizedRowLayout::new(product.columns).words();
    (words.as_ptr().wrapping_add(row * words_of_row).cast(), 4 * words_of_row)
}

/// Calls a method of the tiles for each accumulator in use: the first, and those of a second panel or a
/// second tile of rows.
macro_rules! each_sum {
    ($tiles:ident.$method:ident($sums:expr)) => {
        $tiles.$method::<0>($sums);
        if P == 2 {
            $tiles.$method::<1>($sums.add(TILE));
        }
        if R == 2 {
            $tiles.$method::<2>($sums.add(2 * TILE));
        }
        if R == 2 && P == 2 {
            $tiles.$method::<3>($sums.add(3 * TILE));
        }
    };
}

/// Zeroes the accumulators, or reloads them from `sums` if `begun`.
///
/// # Safety
/// The tiles must have the shapes of [`Group::run`]. `sums` must be valid for [`Sums`]; if `begun`, [`keep`] has stored
/// the accumulators in it.
#[inline(always)]
unsafe fn resume<const R: usize, const P: usize>(tiles: &Tiles, begun: bool, sums: *mut u8) {
    // SAFETY: `sums` is readable for the tiles that an earlier `keep` stored there (see `# Safety`).
    unsafe {
        if begun {
            each_sum!(tiles.load_lines(sums));
            return;
        }
    }
    tiles.zero::<0>();
    if P == 2 {
        tiles.zero::<1>();
    }
    if R == 2 {
        tiles.zero::<2>();
    }
    if R == 2 && P == 2 {
        tiles.zero::<3>();
    }
}

/// Stores the accumulators.
///
/// # Safety
/// The tiles must have the shapes of [`Group::run`], and `sums` must be writable for [`Sums`].
#[inline(always)]
unsafe fn keep<const R: usize, const P: usize>(tiles: &Tiles, sums: *mut u8) {
    // SAFETY: `sums` is writable for `Sums`, which has room for each tile in use (see `# Safety`).
    unsafe {
        each_sum!(tiles.store_lines(sums));
    }
}
