//! Matmul of many rows with W4i: weights are unpacked to int8 once for all rows.

use core::mem::MaybeUninit;

use super::Input;
use super::row_types::{BookRow, ByteRow, RowScheme};
use super::run::MatmulShare;
use super::simd::MatmulSimd;
use super::tile::{MacroBlockLines, QuantizedRow};
use crate::ops::quantize::QuantizedRowLayout;
use crate::panel::ROWS;

/// Minimum number of rows; fewer are faster without unpacking.
pub(super) const MIN_ROWS: usize = 12;
/// Macro-blocks of 64 columns that are unpacked at a time: with four panels they fit into L1.
const BLOCKS: usize = 8;
/// Maximum number of panels that are processed at a time.
const PANELS: usize = 4;
/// Rows whose accumulators are kept at a time.
const GROUP: usize = 128;

impl MatmulShare<'_> {
    /// Computes the share, `V` vectors of outputs at a time; returns the first panel that remains.
    #[inline(always)]
    pub(super) fn unpacked<L: MatmulSimd, const V: usize>(&self, l: L) -> usize {
        const { assert!((V * L::WIDTH).is_multiple_of(ROWS) && V * L::WIDTH / ROWS <= PANELS) };
        let step = V * L::WIDTH / ROWS;
        let mut panel = self.panels.start;
        while panel + step <= self.panels.end {
            for start in self.rows.clone().step_by(GROUP) {
                let count = GROUP.min(self.rows.end - start);
                self.wide_group::<L, V>(l, panel, start, count);
            }
            panel += step;
        }
        panel
    }

    /// Computes `count` rows from `first` on, times the vectors from panel `panel` on.
    #[inline(always)]
    fn wide_group<L: MatmulSimd, const V: usize>(&self, l: L, panel: usize, first: usize, count: usize) {
        let Input::Rotated(words) = self.product.input else { return };
        let layout = QuantizedRowLayout::new(self.product.columns);
        let blocks = self.product.columns.div_ceil(64);
        let panel_bytes = self.product.panel.panel_bytes(self.product.columns).unwrap_or(0);
        let vectors = Strip::<V>::new::<L>();
        let mut bytes = MaybeUninit::<MacroBlockLines<{ PANELS * BLOCKS * 16 }>>::uninit();
        let mut totals = [const { MaybeUninit::<[L::D; V]>::uninit() }; GROUP];
        // SAFETY: `Product::check` ensures that the rows and panels exist; the unpacked bytes and the totals
        // of each row are written before they are read.
        unsafe {
            let weights = self.product.weights.as_ptr().add(panel * panel_bytes);
            for start in (0..blocks).step_by(BLOCKS) {
                let here = BLOCKS.min(blocks - start);
                vectors.unpack(l, weights, panel_bytes, start, here, bytes.as_mut_ptr().cast());
                let chunk = Chunk { bytes: bytes.as_ptr().cast(), start, blocks: here };
                let mut m = 0;
                while m + 4 <= count {
                    let rows = QuantizedRow::several(words, layout, first + m);
                    chunk.add::<L, 4, V>(l, &vectors, &rows, &mut totals[m..m + 4]);
                    m += 4;
                }
                for m in m..count {
                    let rows = QuantizedRow::several(words, layout, first + m);
                    chunk.add::<L, 1, V>(l, &vectors, &rows, &mut totals[m..=m]);
                }
            }
            for (m, totals) in totals[..count].iter().enumerate() {
                let [row] = QuantizedRow::several(words, layout, first + m);
                let totals = totals.assume_init();
                for (v, total) in totals.into_iter().enumerate() {
                    let end = weights.add(vectors.panels[v] * panel_bytes + blocks * BookRow::BYTES);
                    let scale = BookRow::scale(l, end, vectors.lanes[v]);
                    let sum = l.finish(total, ByteRow::initial::<L>(row));
                    let product = l.mul(sum, l.mul(scale, l.splat(row.scale())));
                    let output = (panel + vectors.panels[v]) * ROWS + vectors.lanes[v];
                    self.finish(l, product, first + m, output);
                }
            }
        }
    }
}

/// Adjacent vectors of outputs, starting at the beginning of a panel.
struct Strip<const V: usize> {
    /// The panel of each vector, relative to the first.
    panels: [usize; V],
    /// The first row of each vector in its panel.
    lanes: [usize; V],
}

impl<const V: usize> Strip<V> {
    #[inline(always)]
    fn new<L: MatmulSimd>() -> Self {
        let mut strip = Self { panels: [0; V], lanes: [0; V] };
        for v in 0..V {
            (strip.panels[v], strip.lanes[v]) = (v * L::WIDTH / ROWS, v * L::WIDTH % ROWS);
        }
        strip
    }

    /// Unpacks `blocks` macro-blocks, starting at block `start`, to int8.
    ///
    /// # Safety
    /// The panels at `weights` must have these blocks, and `to` must have room for [`BLOCKS`] of each panel.
    #[inline(always)]
    unsafe fn unpack<L: MatmulSimd>(
        &self,
        l: L,
        weights: *const u8,
        panel_bytes: usize,
        start: usize,
        blocks: usize,
        to: *mut u8,
    ) {
        for (panel, lane) in self.panels.iter().zip(self.lanes) {
            for block in 0..blocks {
                // SAFETY: the panels have block `start + block`, and `to` has room for it (see `# Safety`).
                unsafe {
                    let from = weights.add(panel * panel_bytes + (start + block) * BookRow::BYTES);
                    BookRow::unpack(l, from, lane, to.add((panel * BLOCKS + block) * ByteRow::BYTES));
                }
            }
        }
    }
}

/// Some columns of the weights, unpacked to int8.
struct Chunk {
    bytes: *const u8,
    /// The first macro-block.
    start: usize,
    blocks: usize,
}

impl Chunk {
    /// Adds the products of `M` rows to their totals; the first chunk initializes the totals.
    ///
    /// # Safety
    /// `self.bytes` must hold the `self.blocks` blocks of every panel of `vectors`, as [`Strip::unpack`] stores
    /// them. Every row must have the columns of these blocks. Unless `self.start` is 0, the totals must be those
    /// of the previous chunks.
    #[inline(always)]
    unsafe fn add<L: MatmulSimd, const M: usize, const V: usize>(
        &self,
        l: L,
        vectors: &Strip<V>,
        rows: &[QuantizedRow; M],
        totals: &mut [MaybeUninit<[L::D; V]>],
    ) {
        // SAFETY: `self.bytes` holds `self.blocks` unpacked blocks per panel, the rows have their columns, and unless
        // `self.start` is 0, the previous chunk wrote the totals (see `# Safety`).
        unsafe {
            let mut sums = [[l.start(0); V]; M];
            for m in 0..M {
                sums[m] = match self.start {
                    0 => [l.start(ByteRow::initial::<L>(rows[m])); V],
                    _ => totals[m].assume_init(),
                };
            }
            for block in 0..self.blocks {
                let mut lines = [self.bytes; V];
                for (line, panel) in lines.iter_mut().zip(vectors.panels) {
                    *line = self.bytes.add((panel * BLOCKS + block) * ByteRow::BYTES);
                }
                let column = 64 * (self.start + block);
                ByteRow::add::<L, M, V>(l, &lines, &vectors.lanes, rows, column, &mut sums);
            }
            for m in 0..M {
                totals[m].write(sums[m]);
            }
        }
    }
}
