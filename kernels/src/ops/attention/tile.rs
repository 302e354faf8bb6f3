//! The inner product of attention: rows of numbers times sixteen-lane vectors, some of each at once.

use super::PANEL;
use crate::simd::Simd;

/// How cached numbers that are not whole are kept.
pub(super) trait Number: Copy {
    /// Words of sixteen numbers.
    const WORDS: usize;

    /// Vector `index` of some words.
    ///
    /// # Safety
    /// There are `(index + 1) · WORDS` words.
    unsafe fn get<S: Simd>(s: S, words: &[u32], index: usize) -> S::F;
}

/// Two bytes.
#[derive(Clone, Copy)]
pub(super) struct F16Numbers;

impl Number for F16Numbers {
    const WORDS: usize = 8;

    #[inline(always)]
    unsafe fn get<S: Simd>(s: S, words: &[u32], index: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.load_halves(unsafe { words.as_chunks().0.get_unchecked(index) })
    }
}

/// Four bytes.
#[derive(Clone, Copy)]
pub(super) struct F32Numbers;

impl Number for F32Numbers {
    const WORDS: usize = 16;

    #[inline(always)]
    unsafe fn get<S: Simd>(s: S, words: &[u32], index: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.load_words(unsafe { words.as_chunks().0.get_unchecked(index) })
    }
}

/// Keys or values of a block: rows of vectors, number `start + k · row + v · side`.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a> {
    words: &'a [u32],
    /// What is read later, as many words; they are asked for in order, `asked` vectors' words after each row.
    next: &'a [u32],
    start: usize,
    row: usize,
    side: usize,
    asked: usize,
}

impl<'a> TileRows<'a> {
    /// `panels` panels of keys, side by side, from panel `panel` on: a row for each column.
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

    /// Values from slot `slot` and vector `vector` on: a row for each position.
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

    /// Whether there are `rows` rows of `vectors` vectors, also of those to ask for.
    fn hold(self, rows: usize, vectors: usize, words: usize) -> bool {
        let last = self.start + rows.saturating_sub(1) * self.row + vectors.saturating_sub(1) * self.side;
        let last_asked = self.start + rows.saturating_sub(1) * self.asked + vectors.saturating_sub(1);
        last < self.words.len() / words && last_asked < self.next.len() / words
    }
}

/// The first, or where it has not as many words the second.
pub(super) fn or_same<'a>(next: &'a [u32], words: &'a [u32]) -> &'a [u32] {
    if next.len() == words.len() { next } else { words }
}

/// Continues `sums[q][v] = fma(left[q][k], right[k][v], sums[q][v])` for `count` rows of `right`, in order.
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
    // A copy stays in registers.
    let mut totals = *sums;
    for k in 0..count {
        // SAFETY: the assertion.
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
