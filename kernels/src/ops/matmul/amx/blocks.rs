//! Types with scales per sub-block: a tile multiplies one sub-block of sixteen rows with a panel, and vectors
//! accumulate the scaled integers in f32, in the order of the contract.

use core::arch::x86_64::*;
use core::mem::MaybeUninit;
use core::ops::Range;

use super::super::Input;
use super::super::formats::{QuantPlane, ScaleAddress, ScaleScheme};
use super::super::run::MatmulShare;
use super::super::simd::MatmulSimd;
use super::super::tile::{self, LINE, QuantizedRow, scaled_sum, sixteen_groups};
use super::{GROUP, groups};
use crate::ops::amx_tiles::{self as tiles, Shapes, Tiles};
use crate::ops::quantize::QuantizedRowLayout;
use crate::panel::ROWS;
use crate::simd::Avx512;

/// Macro-blocks of 64 columns that are unpacked at a time: they fit into L1.
const MACROS: usize = 32;

/// The integer products of the sub-blocks of a macro-block, at most four.
type Products = [[[i32; ROWS]; tiles::ROWS]; 4];

/// Scratch memory for a panel, aligned to cache lines.
#[repr(C, align(64))]
struct Scratch {
    bytes: [[[u8; LINE]; 16]; MACROS],
    products: [Products; 2],
    sums: [[f32; ROWS]; GROUP],
}

/// Computes a share of a matmul.
///
/// # Safety
/// The processor must have AMX, and the share must have been checked.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run<P: QuantPlane, S: ScaleScheme>(l: Avx512, part: &MatmulShare<'_>) {
    for rows in groups(part.rows.clone(), tiles::ROWS, GROUP) {
        // SAFETY: the processor has AMX, and `part` was checked; `rows` is a part of its rows (see `# Safety`).
        unsafe { Group { part, rows }.run::<P, S>(l) }
    }
}

/// Rows that are multiplied with one part of the weights after the other: whole tiles, or less than one.
struct Group<'a> {
    part: &'a MatmulShare<'a>,
    rows: Range<usize>,
}

/// Some macro-blocks of a panel.
struct Chunk {
    panel: *const u8,
    macros: Range<usize>,
}

impl Group<'_> {
    /// Computes all rows of the group.
    ///
    /// # Safety
    /// The processor must have AMX. The share must have been checked, and contain the rows.
    #[inline(always)]
    unsafe fn run<P: QuantPlane, S: ScaleScheme>(&self, l: Avx512) {
        let rows = self.rows.len().min(tiles::ROWS);
        let mut shapes = Shapes::NONE;
        for tile in 0..4 {
            shapes = shapes.with(tile, rows, LINE);
        }
        for (left, right) in [(4, 6), (5, 7)] {
            shapes = shapes.with(left, rows, S::SUB).with(right, S::SUB / 4, LINE);
        }
        let product = self.part.product;
        let panel_bytes = product.panel.panel_bytes(product.columns).unwrap_or(0);
        let macros = product.panel.columns_padded(product.columns) / 64;
        let mut scratch = MaybeUninit::<Scratch>::uninit();
        let scratch = scratch.as_mut_ptr();
        // SAFETY: the processor has AMX, and the share was checked, so its rows and panels exist (see `# Safety`).
        // `chunk` writes the sums before they are read.
        unsafe {
            let tiles = Tiles::with_shapes(&shapes);
            for index in self.part.panels.clone() {
                let panel = product.weights.as_ptr().add(index * panel_bytes);
                let mut at = 0;
                // Runs once even for zero columns, to initialize the sums.
                loop {
                    let chunk = Chunk { panel, macros: at..macros.min(at + MACROS) };
                    at = chunk.macros.end;
                    self.chunk::<P, S>(l, &tiles, &chunk, scratch);
                    if at >= macros {
                        break;
                    }
                }
                for (m, row) in self.rows.clone().enumerate() {
                    let sum = _mm512_loadu_ps((*scratch).sums[m].as_ptr());
                    self.part.finish(l, sum, row, index * ROWS);
                }
            }
        }
    }

    /// Computes all rows times a chunk of a panel.
    ///
    /// # Safety
    /// As for `run`, whose `tiles` these are. `chunk` must be part of a panel of the share, with at most [`MACROS`]
    /// macro-blocks, and `scratch` writable, with the sums of earlier chunks.
    #[inline(always)]
    unsafe fn chunk<P: QuantPlane, S: ScaleScheme>(
        &self,
        l: Avx512,
        tiles: &Tiles,
        chunk: &Chunk,
        scratch: *mut Scratch,
    ) {
        // SAFETY: `chunk` has at most `MACROS` macro-blocks of its panel, so each has a slot in `scratch.bytes`;
        // `start` is below the rows of the group (see `# Safety`).
        unsafe {
            if !is_direct::<P>() {
                for (slot, index) in chunk.macros.clone().enumerate() {
                    let (_, lines) = place_of::<P, S>(chunk.panel, index);
                    unpack::<P>(l, lines, (&raw mut (*scratch).bytes[slot]).cast());
                }
            }
            for start in (0..self.rows.len()).step_by(tiles::ROWS) {
                self.sixteen::<P, S>(l, tiles, chunk, start, scratch);
            }
        }
    }

    /// Computes up to sixteen rows from row `start` of the group on.
    ///
    /// # Safety
    /// As for `chunk`, and `start` must be below the number of rows; unless the type's lines are used directly,
    /// `scratch.bytes` must hold the chunk's macro-blocks.
    #[inline(always)]
    unsafe fn sixteen<P: QuantPlane, S: ScaleScheme>(
        &self,
        l: Avx512,
        tiles: &Tiles,
        chunk: &Chunk,
        start: usize,
        scratch: *mut Scratch,
    ) {
        let Input::Quantized(words) = self.part.product.input else { return };
        let layout = QuantizedRowLayout::new(self.part.product.columns);
        let count = (self.rows.len() - start).min(tiles::ROWS);
        // SAFETY: rows `start` to `start + count - 1` of the group lie inside the checked share, and `chunk` inside its
        // panel; `scratch` is valid, and its sums hold those of earlier chunks (see `# Safety`).
        unsafe {
            let rows =
                Rows { start: words.as_ptr().add((self.rows.start + start) * layout.words()), layout, count };
            let mut sums = [l.splat(0.0); tiles::ROWS];
            if chunk.macros.start > 0 {
                for (m, sum) in sums.iter_mut().enumerate().take(count) {
                    *sum = _mm512_loadu_ps((*scratch).sums[start + m].as_ptr());
                }
            }
            // The tile products are computed one macro-block ahead of the vector code.
            for (slot, index) in chunk.macros.clone().enumerate() {
                let (_, lines) = place_of::<P, S>(chunk.panel, index);
                let bytes = if is_direct::<P>() { lines } else { (&raw const (*scratch).bytes[slot]).cast() };
                rows.multiply::<S>(tiles, bytes, 64 * index, &raw mut (*scratch).products[slot % 2]);
                if slot > 0 {
                    let products = &(*scratch).products[(slot - 1) % 2];
                    rows.add::<P, S>(l, chunk.panel, index - 1, products, &mut sums);
                }
            }
            if let Some(last) = chunk.macros.clone().next_back() {
                let products = &(*scratch).products[(chunk.macros.len() - 1) % 2];
                rows.add::<P, S>(l, chunk.panel, last, products, &mut sums);
            }
            for (m, sum) in sums.iter().enumerate().take(count) {
                _mm512_storeu_ps((*scratch).sums[start + m].as_mut_ptr(), *sum);
            }
        }
    }
}

/// Up to sixteen quantized rows.
struct Rows {
    start: *const i32,
    layout: QuantizedRowLayout,
    count: usize,
}

impl Rows {
    /// Computes the integer products with the macro-block in `bytes`, whose first column is `column`.
    ///
    /// # Safety
    /// The tiles must have the shapes of [`Group::run`]. The rows must be readable for the 64 columns, `bytes`
    /// for sixteen lines, and `products` must be writable.
    #[inline(always)]
    unsafe fn multiply<S: ScaleScheme>(
        &self,
        tiles: &Tiles,
        bytes: *const u8,
        column: usize,
        products: *mut Products,
    ) {
        macro_rules! sub_block {
            ($tile:literal, $left:literal, $right:literal) => {{
                tiles.zero::<$tile>();
                let values = self.start.cast::<u8>().add(column + $tile * S::SUB);
                tiles.load::<$left>(values, 4 * self.layout.words());
                tiles.load_lines::<$right>(bytes.add($tile * S::SUB / 4 * LINE));
                tiles.dot::<$tile, $left, $right>();
            }};
        }
        // SAFETY: the tiles have the shapes of `Group::run`; `self` is readable for `count` rows from `column` on,
        // `bytes` for a macro-block of signed bytes, and `products` writable (see `# Safety`).
        unsafe {
            sub_block!(0, 4, 6);
            sub_block!(1, 5, 7);
            if S::SUB == 16 {
                sub_block!(2, 4, 6);
                sub_block!(3, 5, 7);
            }
            tiles.store_lines::<0>((&raw mut (*products)[0]).cast());
            tiles.store_lines::<1>((&raw mut (*products)[1]).cast());
            if S::SUB == 16 {
                tiles.store_lines::<2>((&raw mut (*products)[2]).cast());
                tiles.store_lines::<3>((&raw mut (*products)[3]).cast());
            }
        }
    }

    /// Adds the scaled products with macro-block `index` to the sums.
    ///
    /// # Safety
    /// The panel must have the macro-block, and the rows its columns; `products` must hold those of its sub-blocks.
    #[inline(always)]
    unsafe fn add<P: QuantPlane, S: ScaleScheme>(
        &self,
        l: Avx512,
        panel: *const u8,
        index: usize,
        products: &Products,
        sums: &mut [__m512; tiles::ROWS],
    ) {
        // SAFETY: the panel has macro-block `index`, and the rows have its columns; `products` of its sub-blocks were
        // stored for all rows up to `count` (see `# Safety`).
        unsafe {
            let (head, lines) = place_of::<P, S>(panel, index);
            let tail = lines.add(P::LINES * LINE);
            for (sub, products) in products.iter().enumerate().take(64 / S::SUB) {
                let place = ScaleAddress { head, tail, mac: index % S::MACROS, sub, lane: 0 };
                let scale = S::scale(l, place);
                let min = if S::MIN { S::min(l, place) } else { scale };
                let column = 64 * index + sub * S::SUB;
                sixteen_groups!(M => {
                    if M < self.count {
                        let row = QuantizedRow::new(self.start.add(M * self.layout.words()), self.layout);
                        let row_scale = l.splat(*row.scales.add(column / 32));
                        let product = l.floats(&products[M]);
                        sums[M] = l.fma(product, l.mul(scale, row_scale), sums[M]);
                        if S::MIN {
                            sums[M] = l.fma(min, l.splat(scaled_sum::<S>(row, column)), sums[M]);
                        }
                    }
                });
            }
        }
    }
}

/// Returns whether the packed lines of a type are signed bytes already.
const fn is_direct<P: QuantPlane>() -> bool {
    P::LINES == 16
}

/// Returns the head of the block that holds macro-block `index`, and the lines of the macro-block.
///
/// # Safety
/// The panel must have the macro-block.
#[inline(always)]
unsafe fn place_of<P: QuantPlane, S: ScaleScheme>(panel: *const u8, index: usize) -> (*const u8, *const u8) {
    let (block, mac) = (index / S::MACROS, index % S::MACROS);
    // SAFETY: the panel has macro-block `index` (see `# Safety`), and thus its block's head.
    unsafe {
        let head = panel.add(block * tile::block_bytes::<P, S>());
        (head, head.add(S::HEAD * LINE + mac * tile::macro_bytes::<P, S>()))
    }
}

/// Unpacks a macro-block to signed bytes.
///
/// # Safety
/// `lines` must be those of a macro-block, and `to` must have room for sixteen lines.
#[inline(always)]
unsafe fn unpack<P: QuantPlane>(l: Avx512, lines: *const u8, to: *mut u8) {
    // SAFETY: `lines` has the lines of a macro-block, and `to` room for sixteen (see `# Safety`).
    unsafe {
        sixteen_groups!(G => {
            let values = P::group::<Avx512, { G % 8 }>(l, lines, G / 8);
            let values = if P::SIGNED { values } else { _mm512_sub_epi8(values, _mm512_set1_epi8(P::OFFSET as i8)) };
            l.store_bytes(values, to.add(G * LINE));
        });
    }
}
