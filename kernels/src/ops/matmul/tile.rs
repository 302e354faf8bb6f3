//! The microkernel: some rows times some vectors of outputs, over all columns.

use super::formats::{QuantPlane, ScaleAddress, ScaleScheme};
use super::simd::MatmulSimd;
use crate::ops::quantize::QuantizedRowLayout;

/// Bytes of a line.
pub(super) const LINE: usize = 64;

/// Lines aligned to cache lines, so that reading one touches only one cache line.
#[repr(C, align(64))]
pub(super) struct MacroBlockLines<const N: usize>([[u8; LINE]; N]);

/// Pointers into a quantized row.
#[derive(Clone, Copy)]
pub(super) struct QuantizedRow {
    pub(super) values: *const i32,
    pub(super) scales: *const f32,
    scaled_sums: *const f32,
    sums: *const i32,
}

impl QuantizedRow {
    /// Creates the pointers for the row at `start`.
    ///
    /// # Safety
    /// `start` must be valid for reads of a whole row of this layout.
    #[inline(always)]
    pub(super) unsafe fn new(start: *const i32, layout: QuantizedRowLayout) -> Self {
        // SAFETY: all offsets lie inside the row.
        unsafe {
            Self {
                values: start,
                scales: start.add(layout.scales()).cast(),
                scaled_sums: start.add(layout.scaled_sums()).cast(),
                sums: start.add(layout.sums()),
            }
        }
    }

    /// Returns `M` consecutive rows of `words`, starting with row `first`.
    ///
    /// # Safety
    /// `words` must hold at least `first + M` rows of this layout.
    #[inline(always)]
    pub(super) unsafe fn several<const M: usize>(
        words: &[i32],
        layout: QuantizedRowLayout,
        first: usize,
    ) -> [Self; M] {
        // SAFETY: rows `first` to `first + M - 1` are in `words` (see `# Safety`).
        core::array::from_fn(|m| unsafe {
            Self::new(words.as_ptr().add((first + m) * layout.words()), layout)
        })
    }

    /// Returns the sum of the integers of the sixteen columns from `column` on.
    ///
    /// # Safety
    /// The column must lie inside the padded row.
    #[inline(always)]
    pub(super) unsafe fn sum(self, column: usize) -> i32 {
        // SAFETY: `column` is below the padded length (see `# Safety`), and there is a sum for every sixteen columns.
        unsafe { *self.sums.add(column / 16) }
    }

    /// Returns the sum of all integers of a rotated row.
    ///
    /// # Safety
    /// The row must be valid.
    #[inline(always)]
    pub(super) unsafe fn total(self) -> i32 {
        // SAFETY: the total is stored in place of the first scaled sum.
        unsafe { *self.scaled_sums.cast() }
    }

    /// Returns the scale of a rotated row.
    ///
    /// # Safety
    /// The row must be valid.
    #[inline(always)]
    pub(super) unsafe fn scale(self) -> f32 {
        // SAFETY: the row is valid; all its scales are equal.
        unsafe { *self.scales }
    }
}

/// Expands a block of code with the constant `$g` from 0 to 15.
macro_rules! sixteen_groups {
    ($g:ident => $body:block) => {
        sixteen_groups!(@ $g $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $g:ident $body:block $($value:literal)*) => {
        $({ const $g: usize = $value; $body })*
    };
}

pub(super) use sixteen_groups;

/// Expands a block of code with the constant `$g` from 0 to 7.
macro_rules! eight_groups {
    ($g:ident => $body:block) => {
        sixteen_groups!(@ $g $body 0 1 2 3 4 5 6 7)
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use eight_groups;

/// Returns the bytes of a macro-block with its tail.
pub(super) const fn macro_bytes<P: QuantPlane, S: ScaleScheme>() -> usize {
    (P::LINES + S::TAIL) * LINE
}

/// Returns the bytes of a block: its head and its macro-blocks.
pub(super) const fn block_bytes<P: QuantPlane, S: ScaleScheme>() -> usize {
    S::HEAD * LINE + S::MACROS * macro_bytes::<P, S>()
}

/// Half a macro-block, 32 columns, of a panel: what inner loops are unrolled for if code is compact.
#[derive(Clone, Copy)]
pub(super) struct HalfBlock {
    /// Its index in the panel.
    pub(super) index: usize,
    /// The offset of the block in the panel, in bytes.
    pub(super) head: usize,
    /// The offset of the macro-block in the panel, in bytes.
    pub(super) lines: usize,
    /// The index of the macro-block in its block.
    pub(super) mac: usize,
    /// 0 or 1: which half of the macro-block.
    pub(super) half: usize,
}

impl HalfBlock {
    /// Columns.
    pub(super) const COLUMNS: usize = 32;

    /// Returns the first or second half of macro-block `macro_block` of a panel.
    #[inline(always)]
    pub(super) fn new<P: QuantPlane, S: ScaleScheme>(macro_block: usize, half: usize) -> Self {
        let head = macro_block / S::MACROS * block_bytes::<P, S>();
        let mac = macro_block % S::MACROS;
        let lines = head + S::HEAD * LINE + mac * macro_bytes::<P, S>();
        Self { index: 2 * macro_block + half, head, lines, mac, half }
    }

    /// Returns the address of the scales of sub-block `sub` of the half, for rows from `lane` on of `panel`.
    ///
    /// # Safety
    /// The panel must have the half block.
    #[inline(always)]
    pub(super) unsafe fn scales<P: QuantPlane, S: ScaleScheme>(
        self,
        panel: *const u8,
        lane: usize,
        sub: usize,
    ) -> ScaleAddress {
        let Self { head, lines, mac, half, .. } = self;
        // SAFETY: the head and the tail belong to the block and the macro-block, which the panel has (see `# Safety`).
        unsafe {
            let tail = panel.add(lines + P::LINES * LINE);
            ScaleAddress {
                head: panel.add(head),
                tail,
                mac,
                sub: half * (Self::COLUMNS / S::SUB) + sub,
                lane,
            }
        }
    }
}

/// The extent of an inner loop.
#[derive(Clone, Copy)]
pub(super) struct LoopExtent {
    /// Blocks, or columns of float types.
    pub(super) count: usize,
    /// Whether to prefetch the weights that come next: a few rows use weights up faster than they arrive.
    pub(super) prefetch: bool,
}

/// Adds the products of all blocks to `sums`, for integer types.
///
/// # Safety
/// Every pointer of `panels` must be valid for the panel's blocks, offset by its vector's first row `lanes`,
/// and every row for the columns of the blocks.
#[inline(always)]
pub(super) unsafe fn integers<
    L: MatmulSimd,
    P: QuantPlane,
    S: ScaleScheme,
    const M: usize,
    const V: usize,
>(
    l: L,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    rows: &[QuantizedRow; M],
    blocks: LoopExtent,
    sums: &mut [[L::F; V]; M],
) {
    // SAFETY: the half blocks lie inside the panels, their columns inside the rows.
    unsafe {
        if const { L::COMPACT && M > 1 } {
            for index in 0..2 * S::MACROS * blocks.count {
                let at = HalfBlock::new::<P, S>(index / 2, index % 2);
                prefetched_half::<L, P, S, M, V>(l, panels, lanes, rows, at, blocks.prefetch, sums);
            }
        } else {
            for index in 0..S::MACROS * blocks.count {
                let halves = [HalfBlock::new::<P, S>(index, 0), HalfBlock::new::<P, S>(index, 1)];
                prefetched_half::<L, P, S, M, V>(l, panels, lanes, rows, halves[0], blocks.prefetch, sums);
                prefetched_half::<L, P, S, M, V>(l, panels, lanes, rows, halves[1], blocks.prefetch, sums);
            }
        }
    }
}

/// Adds the products of half a macro-block to `sums`, and prefetches as many weights if `prefetch` is set.
///
/// # Safety
/// As for [`half_block`].
#[inline(always)]
unsafe fn prefetched_half<L: MatmulSimd, P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
    l: L,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    rows: &[QuantizedRow; M],
    at: HalfBlock,
    prefetch: bool,
    sums: &mut [[L::F; V]; M],
) {
    if prefetch {
        let lines = const { (P::LINES + S::TAIL).div_ceil(2) };
        let next = at.lines + at.half * lines * LINE + ahead(panels, lanes);
        for v in (0..V).filter(|&v| lanes[v] == 0) {
            for line in 0..lines {
                l.prefetch(panels[v].wrapping_add(next + line * LINE));
            }
        }
    }
    // SAFETY: the contract is that of this function.
    unsafe { half_block::<L, P, S, M, V>(l, panels, lanes, at, rows, sums) };
}

/// Returns the prefetch distance in bytes: the same offset in the panels that come next, or less for long
/// panels.
#[inline(always)]
pub(super) fn ahead<const V: usize>(panels: &[*const u8; V], lanes: &[usize; V]) -> usize {
    const MAX: usize = 160 << 10;
    const LONG: usize = 8 << 10;
    let span = panels[V - 1].addr() - panels[0].addr();
    let streams = lanes.iter().filter(|&&lane| lane == 0).count().max(2);
    let next = span / (streams - 1) * streams;
    if next > MAX || next == 0 { LONG } else { next }
}

/// Adds the products of half a macro-block to `sums`.
///
/// # Safety
/// Every pointer of `panels` must be valid for a panel that has the half block, and every row for its columns.
#[inline(always)]
unsafe fn half_block<L: MatmulSimd, P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
    l: L,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    at: HalfBlock,
    rows: &[QuantizedRow; M],
    sums: &mut [[L::F; V]; M],
) {
    let bias = if P::SIGNED { L::SIGNED_BIAS } else { P::OFFSET };
    let column = at.index * HalfBlock::COLUMNS;
    let mut initial = [0; M];
    let mut dots = [[l.start(0); V]; M];
    eight_groups!(G => {
        // SAFETY: the group's line lies inside the macro-block, its columns inside the rows.
        unsafe {
            if const { G.is_multiple_of(S::SUB / 4) } {
                for m in 0..M {
                    initial[m] = -bias * row_sum::<S>(rows[m], column + 4 * G);
                    dots[m] = [l.start(initial[m]); V];
                }
            }
            for v in 0..V {
                let weights = P::group::<L, G>(l, panels[v].add(at.lines + 4 * lanes[v]), at.half);
                for m in 0..M {
                    let a = *rows[m].values.add(column / 4 + G);
                    dots[m][v] = if P::SIGNED {
                        l.dot_signed(dots[m][v], weights, a)
                    } else {
                        l.dot_small(dots[m][v], weights, a)
                    };
                    if const { !P::SIGNED && ((G + 1).is_multiple_of(P::SETTLE) || (G + 1).is_multiple_of(S::SUB / 4)) } {
                        dots[m][v] = l.settle(dots[m][v]);
                    }
                }
            }
            if const { (G + 1).is_multiple_of(S::SUB / 4) } {
                for v in 0..V {
                    let place = at.scales::<P, S>(panels[v], lanes[v], const { G / (S::SUB / 4) });
                    let scale = S::scale(l, place);
                    for m in 0..M {
                        let row_scale = *rows[m].scales.add(at.index);
                        let dot = l.finish(dots[m][v], initial[m]);
                        sums[m][v] = l.fma(dot, l.mul(scale, l.splat(row_scale)), sums[m][v]);
                    }
                    if S::MIN {
                        let min = S::min(l, place);
                        for m in 0..M {
                            let scaled = scaled_sum::<S>(rows[m], column + 4 * G);
                            sums[m][v] = l.fma(min, l.splat(scaled), sums[m][v]);
                        }
                    }
                }
            }
        }
    });
}

/// Returns the sum of the row's integers in the sub-block of `column`.
///
/// # Safety
/// The row must be valid for the sub-block.
#[inline(always)]
pub(super) unsafe fn row_sum<S: ScaleScheme>(row: QuantizedRow, column: usize) -> i32 {
    let at = column / 16;
    // SAFETY: sums exist for every 16 columns of the padded row.
    unsafe { if S::SUB == 16 { *row.sums.add(at) } else { *row.sums.add(at & !1) + *row.sums.add(at | 1) } }
}

/// [`row_sum`] times the row's scale.
///
/// # Safety
/// The row must be valid for the sub-block.
#[inline(always)]
pub(super) unsafe fn scaled_sum<S: ScaleScheme>(row: QuantizedRow, column: usize) -> f32 {
    // SAFETY: sums exist for every 16, scales and scaled sums for every 32 columns of the padded row.
    unsafe {
        if S::SUB == 16 {
            *row.scales.add(column / 32) * *row.sums.add(column / 16) as f32
        } else {
            *row.scaled_sums.add(column / 32)
        }
    }
}

/// The element type of float panels.
pub(super) trait FloatElement {
    /// Columns per line.
    const COLUMNS: usize;

    /// Loads the one or two columns of a line; `line` points at this vector's bytes.
    ///
    /// # Safety
    /// `line` must be readable for the vector's `4 · WIDTH` bytes.
    unsafe fn load<L: MatmulSimd>(l: L, line: *const u8) -> (L::F, L::F);
}

/// f32.
pub(super) struct F32Element;
/// f16.
pub(super) struct F16Pair;
/// bf16.
pub(super) struct Bf16Pair;

impl FloatElement for F32Element {
    const COLUMNS: usize = 1;
    #[inline(always)]
    unsafe fn load<L: MatmulSimd>(l: L, line: *const u8) -> (L::F, L::F) {
        // SAFETY: `line` is readable for `4 · WIDTH` bytes (see `# Safety`): `WIDTH` f32.
        let x = unsafe { l.floats(line.cast()) };
        (x, x)
    }
}

impl FloatElement for F16Pair {
    const COLUMNS: usize = 2;
    #[inline(always)]
    unsafe fn load<L: MatmulSimd>(l: L, line: *const u8) -> (L::F, L::F) {
        // SAFETY: `line` is readable for `4 · WIDTH` bytes (see `# Safety`): `WIDTH` pairs of f16.
        unsafe { l.half_pairs(line) }
    }
}

impl FloatElement for Bf16Pair {
    const COLUMNS: usize = 2;
    #[inline(always)]
    unsafe fn load<L: MatmulSimd>(l: L, line: *const u8) -> (L::F, L::F) {
        // SAFETY: `line` is readable for `4 · WIDTH` bytes (see `# Safety`): `WIDTH` pairs of bf16.
        unsafe { l.brain_pairs(line) }
    }
}

/// Adds the products of all columns to `sums`, for float types.
///
/// # Safety
/// Every pointer of `panels` must be valid for the panel's lines, and every row for the columns.
#[inline(always)]
pub(super) unsafe fn floats<L: MatmulSimd, E: FloatElement, const M: usize, const V: usize>(
    l: L,
    panels: &[*const u8; V],
    lanes: &[usize; V],
    rows: &[*const f32; M],
    columns: LoopExtent,
    sums: &mut [[L::F; V]; M],
) {
    let ahead = ahead(panels, lanes);
    let LoopExtent { count: columns, prefetch } = columns;
    let mut column = 0;
    while column < columns {
        for v in 0..V {
            // SAFETY: the column lies inside the panel and the rows.
            unsafe {
                let line = panels[v].add(column / E::COLUMNS * LINE + 4 * lanes[v]);
                if prefetch && lanes[v] == 0 {
                    l.prefetch(line.wrapping_add(ahead));
                }
                let (first, second) = E::load(l, line);
                for m in 0..M {
                    sums[m][v] = l.fma(first, l.splat(*rows[m].add(column)), sums[m][v]);
                }
                if E::COLUMNS == 2 && column + 1 < columns {
                    for m in 0..M {
                        sums[m][v] = l.fma(second, l.splat(*rows[m].add(column + 1)), sums[m][v]);
                    }
                }
            }
        }
        column += E::COLUMNS;
    }
}
