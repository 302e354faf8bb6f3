//! The microkernel of the row types: one integer sum from the first column to the last.

use super::formats::{CodebookValues, Int8Values, QuantPlane, RaisedCodebookValues};
use super::run::{MatmulShare, TileShapes};
use super::simd::MatmulSimd;
use super::tile::{LINE, LoopExtent, QuantizedRow, ahead, sixteen_groups};
use super::unpacked;

/// How the macro-blocks of a row type are accumulated.
pub(super) trait RowScheme {
    /// Bytes of a macro-block.
    const BYTES: usize;

    /// Computes the rows and panels of a share for which another method than tiles is faster; returns the remaining
    /// share.
    #[inline(always)]
    fn without_tiles<'a, L: MatmulSimd, T: TileShapes>(_l: L, part: &MatmulShare<'a>) -> MatmulShare<'a> {
        part.after(part.rows.start)
    }

    /// Returns the initial value of the totals of a row.
    ///
    /// # Safety
    /// The row must be valid for reads of a whole rotated row.
    unsafe fn initial<L: MatmulSimd>(row: QuantizedRow) -> i32;

    /// Adds the macro-blocks at `lines`, whose first column is `column`, to the totals.
    ///
    /// # Safety
    /// All lines must be valid for a macro-block, and every row for its columns.
    unsafe fn add<L: MatmulSimd, const M: usize, const V: usize>(
        l: L,
        lines: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        column: usize,
        totals: &mut [[L::D; V]; M],
    );

    /// Loads the scales of the weight rows; `end` is where the blocks of the panel end.
    ///
    /// # Safety
    /// `end` must be readable for the sixteen scales of a panel, and `lane + WIDTH` must be at most 16.
    unsafe fn scale<L: MatmulSimd>(l: L, end: *const u8, lane: usize) -> L::F;
}

/// W8r: signed bytes, f32 scales.
pub(super) struct ByteRow;
/// W4i: codebook levels, a factor per 16 columns, bf16 scales.
pub(super) struct BookRow;

/// Returns the products of rows and vectors over all blocks.
///
/// # Safety
/// Every pointer of `panels` must be readable for a panel of all macro-blocks and its scales, and every row for
/// their columns; `lanes` are below 16 and multiples of `WIDTH`.
#[inline(always)]
pub(super) unsafe fn products<L: MatmulSimd, R: RowScheme, const M: usize, const V: usize>(
    l: L,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    rows: &[QuantizedRow; M],
    blocks: LoopExtent,
) -> [[L::F; V]; M] {
    let LoopExtent { count: blocks, prefetch } = blocks;
    // SAFETY: `panels` have `blocks` macro-blocks and the scales, and `rows` their columns (see `# Safety`).
    unsafe {
        let ahead = ahead(panels, lanes);
        let mut initial = [0; M];
        let mut totals = [[l.start(0); V]; M];
        for m in 0..M {
            initial[m] = R::initial::<L>(rows[m]);
            totals[m] = [l.start(initial[m]); V];
        }
        for block in 0..blocks {
            let mut lines = *panels;
            for v in 0..V {
                lines[v] = panels[v].add(block * R::BYTES);
                if prefetch && lanes[v] == 0 {
                    for at in (0..R::BYTES).step_by(LINE) {
                        l.prefetch(lines[v].wrapping_add(ahead + at));
                    }
                }
            }
            R::add::<L, M, V>(l, &lines, lanes, rows, 64 * block, &mut totals);
        }
        let mut products = [[l.splat(0.0); V]; M];
        for v in 0..V {
            let scale = R::scale(l, panels[v].add(blocks * R::BYTES), lanes[v]);
            for m in 0..M {
                let sum = l.finish(totals[m][v], initial[m]);
                products[m][v] = l.mul(sum, l.mul(scale, l.splat(rows[m].scale())));
            }
        }
        products
    }
}

impl RowScheme for ByteRow {
    const BYTES: usize = 16 * LINE;

    #[inline(always)]
    unsafe fn initial<L: MatmulSimd>(row: QuantizedRow) -> i32 {
        // The total of a row that is not finite may overflow: its scale is NaN.
        // SAFETY: `row` is a whole rotated row (see `# Safety`), which has a total.
        unsafe { row.total().wrapping_mul(-L::SIGNED_BIAS) }
    }

    #[inline(always)]
    unsafe fn add<L: MatmulSimd, const M: usize, const V: usize>(
        l: L,
        lines: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        column: usize,
        totals: &mut [[L::D; V]; M],
    ) {
        sixteen_groups!(G => {
            // SAFETY: the group's line lies inside the macro-block, its columns inside the rows.
            unsafe {
                for v in 0..V {
                    let weights = Int8Values::group::<L, { G % 8 }>(l, lines[v].add(4 * lanes[v]), G / 8);
                    for m in 0..M {
                        let a = *rows[m].values.add(column / 4 + G);
                        totals[m][v] = l.dot_signed(totals[m][v], weights, a);
                    }
                }
            }
        });
    }

    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, end: *const u8, lane: usize) -> L::F {
        // SAFETY: `end` points at sixteen f32, of which the vector is a part (see `RowScheme::scale`).
        unsafe { l.floats(end.add(4 * lane).cast()) }
    }
}

impl BookRow {
    /// Unpacks a macro-block to signed bytes, each a level times its factor, in the layout of [`ByteRow`].
    ///
    /// # Safety
    /// `from` must be readable for a macro-block, `to` writable for one of [`ByteRow`], and `lane + WIDTH` at most 16.
    #[inline(always)]
    pub(super) unsafe fn unpack<L: MatmulSimd>(l: L, from: *const u8, lane: usize, to: *mut u8) {
        // SAFETY: `from` has eight lines of levels and half a line of factors, and `to` sixteen lines (see `# Safety`).
        unsafe {
            let words = l.words(from.add(8 * LINE + 2 * lane));
            let factors =
                [l.factors::<0>(words), l.factors::<4>(words), l.factors::<8>(words), l.factors::<12>(words)];
            sixteen_groups!(G => {
                let levels = CodebookValues::<2>::group::<L, { G % 8 }>(l, from.add(4 * lane), G / 8);
                l.store_bytes(l.times(levels, factors[G / 4]), to.add(G * LINE + 4 * lane));
            });
        }
    }
}

impl RowScheme for BookRow {
    #[inline(always)]
    fn without_tiles<'a, L: MatmulSimd, T: TileShapes>(l: L, part: &MatmulShare<'a>) -> MatmulShare<'a> {
        let many = L::WIDE && part.rows.len() >= unpacked::MIN_ROWS;
        let done = if many { T::unpacked(l, part) } else { part.panels.start };
        let part = MatmulShare { panels: done..part.panels.end, rows: part.rows.clone(), ..*part };
        part.after(l.some_book_rows(&part))
    }

    const BYTES: usize = 8 * LINE + LINE / 2;

    unsafe fn initial<L: MatmulSimd>(_: QuantizedRow) -> i32 {
        0
    }

    #[inline(always)]
    unsafe fn add<L: MatmulSimd, const M: usize, const V: usize>(
        l: L,
        lines: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        column: usize,
        totals: &mut [[L::D; V]; M],
    ) {
        let mut dots = [[l.start_short(0); V]; M];
        // SAFETY: the factors and the groups' lines lie inside the macro-block, its columns inside the rows.
        unsafe {
            let mut factors = [l.words(lines[0].add(8 * LINE + 2 * lanes[0])); V];
            for v in 1..V {
                factors[v] = l.words(lines[v].add(8 * LINE + 2 * lanes[v]));
            }
            sixteen_groups!(G => {
                if const { G.is_multiple_of(4) } {
                    for m in 0..M {
                        let initial = -RaisedCodebookValues::OFFSET * rows[m].sum(column + 4 * G);
                        dots[m] = [l.start_short(initial); V];
                    }
                }
                for v in 0..V {
                    let weights = RaisedCodebookValues::group::<L, { G % 8 }>(l, lines[v].add(4 * lanes[v]), G / 8);
                    for m in 0..M {
                        dots[m][v] = l.dot_small(dots[m][v], weights, *rows[m].values.add(column / 4 + G));
                    }
                }
                if const { (G + 1).is_multiple_of(4) } {
                    for v in 0..V {
                        let factor = match const { G / 4 } {
                            0 => l.factors::<0>(factors[v]),
                            1 => l.factors::<4>(factors[v]),
                            2 => l.factors::<8>(factors[v]),
                            _ => l.factors::<12>(factors[v]),
                        };
                        for m in 0..M {
                            totals[m][v] = l.weigh(totals[m][v], dots[m][v], factor);
                        }
                    }
                }
            });
        }
    }

    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, end: *const u8, lane: usize) -> L::F {
        // SAFETY: `end` points at sixteen bf16, of which the vector is a part (see `RowScheme::scale`).
        unsafe { l.brains(end.add(2 * lane)) }
    }
}
