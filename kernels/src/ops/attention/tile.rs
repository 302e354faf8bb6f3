//! The microkernel of attention: scalar rows times sixteen-lane vectors, a tile of accumulators at a time.

use super::PANEL;
use crate::simd::Simd;

/// A floating-point element type of the KV cache.
pub(super) trait Number: Copy {
    /// Words that hold sixteen elements.
    const WORDS: usize;

    /// Loads vector `index` of some words.
    ///
    /// # Safety
    /// There must be at least `(index + 1) · WORDS` words.
    unsafe fn get<S: Simd>(s: S, words: &[u32], index: usize) -> S::F;
}

/// IEEE half precision.
#[derive(Clone, Copy)]
pub(super) struct F16Numbers;

impl Number for F16Numbers {
    const WORDS: usize = 8;

    #[inline(always)]
    unsafe fn get<S: Simd>(s: S, words: &[u32], index: usize) -> S::F {
        // SAFETY: there are `(index + 1) · 8` words (see `# Safety`), so chunk `index` of eight words exists.
        s.load_halves(unsafe { words.as_chunks().0.get_unchecked(index) })
    }
}

/// IEEE single precision.
#[derive(Clone, Copy)]
pub(super) struct F32Numbers;

impl Number for F32Numbers {
    const WORDS: usize = 16;

    #[inline(always)]
    unsafe fn get<S: Simd>(s: S, words: &[u32], index: usize) -> S::F {
        // SAFETY: there are `(index + 1) · 16` words (see `# Safety`), so chunk `index` of sixteen words exists.
        s.load_words(unsafe { words.as_chunks().0.get_unchecked(index) })
    }
}

/// Keys or values of a block as a matrix of vectors: row k, vector v is at index
/// `start + k · row + v · side`.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a> {
    words: &'a [u32],
    /// Words to prefetch, as many as `words`; `asked` vectors' worth are prefetched per row, in order.
    next: &'a [u32],
    start: usize,
    row: usize,
    side: usize,
    asked: usize,
}

impl<'a> TileRows<'a> {
    /// Returns `panels` adjacent panels of keys from panel `panel` on: one row for each column.
    pub(super) fn keys(
        words: &'a [u32],
        next: &'a [u32],
        columns: usize,
        panel: usize,
        panels: usize,
    ) -> Self {
        let start = panel * columns;
        Self { words, next: or_same(next, words), start, row: 1, side: columns, asked: panels }
    }

    /// Returns the values from slot `slot` and vector `vector` on: one row for each position.
    pub(super) fn values(
        words: &'a [u32],
        next: &'a [u32],
        columns: usize,
        slot: usize,
        vector: usize,
    ) -> Self {
        let row = columns / PANEL;
        Self { words, next: or_same(next, words), start: slot * row + vector, row, side: 1, asked: row }
    }

    /// Returns whether both `words` and `next` have `rows` rows of `vectors` vectors.
    fn hold(self, rows: usize, vectors: usize, words: usize) -> bool {
        let last = self.start + rows.saturating_sub(1) * self.row + vectors.saturating_sub(1) * self.side;
        let last_asked = self.start + rows.saturating_sub(1) * self.asked + vectors.saturating_sub(1);
        last < self.words.len() / words && last_asked < self.next.len() / words
    }
}

/// Returns `next`, or `words` if the lengths differ.
pub(super) fn or_same<'a>(next: &'a [u32], words: &'a [u32]) -> &'a [u32] {
    if next.len() == words.len() { next } else { words }
}

/// Computes `sums[q][v] = fma(left[q][k], right[k][v], sums[q][v])` for `count` rows of `right`, in order.
#[inline(always)]
pub(super) fn multiply<S: Simd, T: Number, const Q: usize, const V: usize>(
    s: S,
    left: &[&[f32]; Q],
    right: TileRows<'_>,
    count: usize,
    sums: &mut [[S::F; V]; Q],
) {
    let enough = left.iter().all(|row| count <= row.len()) && right.hold(count, V, T::WORDS);
    assert!(enough, "beyond a block");
    // A local copy stays in registers.
    let mut totals = *sums;
    for k in 0..count {
        // SAFETY: checked by the assertion.
        unsafe {
            for line in 0..(V * T::WORDS).div_ceil(16) {
                let at = (right.start + k * right.asked) * T::WORDS + line * 16;
                s.prefetch(right.next.get_unchecked(at));
            }
            let mut row = [s.splat(0.0); V];
            for (v, vector) in row.iter_mut().enumerate() {
                *vector = T::get(s, right.words, right.start + k * right.row + v * right.side);
            }
            for q in 0..Q {
                let x = s.splat(*left[q].get_unchecked(k));
                for v in 0..V {
                    totals[q][v] = s.fma(x, row[v], totals[q][v]);
                }
            }
        }
    }
    *sums = totals;
}
