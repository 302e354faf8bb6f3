//! The inner product of attention: rows of numbers times sixteen-lane vectors, some of each at once.

use super::{BLOCK, CacheType, PANEL};
use crate::simd::Simd;

/// Vectors of lanes that stand side by side: number `v` of row `k`.
pub(super) trait Vectors<S: Simd>: Copy {
    /// Whether there are `rows` rows of `vectors` vectors.
    fn holds(self, rows: usize, vectors: usize) -> bool;

    /// # Safety
    /// `holds(k + 1, v + 1)`.
    unsafe fn get(self, s: S, k: usize, v: usize) -> S::F;

    /// Asks for a part of what will be read next; called for each of `rows` rows.
    #[inline(always)]
    fn look_ahead(self, _s: S, _k: usize, _rows: usize) {}
}

/// Numbers of a block that were made f32: `V` vectors for each row, one row after the other.
#[derive(Clone, Copy)]
pub(super) struct Plain<'a, const V: usize>(pub &'a [[[f32; 16]; V]]);

impl<S: Simd, const V: usize> Vectors<S> for Plain<'_, V> {
    #[inline(always)]
    fn holds(self, rows: usize, vectors: usize) -> bool {
        rows <= self.0.len() && vectors <= V
    }
    #[inline(always)]
    unsafe fn get(self, s: S, k: usize, v: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.load(unsafe { self.0.get_unchecked(k).get_unchecked(v) })
    }
}

/// Numbers as the cache keeps them: vector `start + k · row + v · side`.
#[derive(Clone, Copy)]
pub(super) struct Cached<'a> {
    cache: CacheType,
    words: &'a [u32],
    start: usize,
    row: usize,
    side: usize,
    /// What is read after these, or nothing.
    next: &'a [u32],
}

impl<'a> Cached<'a> {
    /// The keys of a block: a row for each column, panels side by side from panel `panel` on.
    pub(super) fn keys(cache: CacheType, words: &'a [u32], columns: usize, panel: usize) -> Self {
        Self { cache, words, start: panel * columns, row: 1, side: columns, next: &[] }
    }

    /// The values of a block: a row for each position, from slot `slot` and vector `vector` on.
    pub(super) fn values(
        cache: CacheType,
        words: &'a [u32],
        columns: usize,
        slot: usize,
        vector: usize,
    ) -> Self {
        let row = columns / 16;
        Self { cache, words, start: slot * row + vector, row, side: 1, next: &[] }
    }
}

impl<'a> Cached<'a> {
    /// The same, with words to ask for on the way.
    pub(super) fn before(self, next: &'a [u32]) -> Self {
        Self { next, ..self }
    }
}

/// Asks for part `index` of `parts` of some words.
#[inline(always)]
pub(super) fn prefetch_part<S: Simd>(s: S, words: &[u32], index: usize, parts: usize) {
    let size = words.len() / parts;
    if let Some(part) = words.get(index * size..(index + 1) * size) {
        s.prefetch(part);
    }
}

impl<S: Simd> Vectors<S> for Cached<'_> {
    #[inline(always)]
    fn look_ahead(self, s: S, k: usize, rows: usize) {
        prefetch_part(s, self.next, k, rows);
    }

    #[inline(always)]
    fn holds(self, rows: usize, vectors: usize) -> bool {
        let words = match self.cache {
            CacheType::F32 => 16,
            CacheType::F16 => 8,
            CacheType::Int8 => return false,
        };
        let last = self.start + rows.saturating_sub(1) * self.row + vectors.saturating_sub(1) * self.side;
        last < self.words.len() / words
    }
    #[inline(always)]
    unsafe fn get(self, s: S, k: usize, v: usize) -> S::F {
        let index = self.start + k * self.row + v * self.side;
        // SAFETY: the caller's promise.
        unsafe {
            match self.cache {
                CacheType::F32 => s.load_words(self.words.as_chunks().0.get_unchecked(index)),
                CacheType::F16 => s.load_halves(self.words.as_chunks().0.get_unchecked(index)),
                // Never held.
                CacheType::Int8 => s.splat(0.0),
            }
        }
    }
}

/// Continues `sums[q][v] = fma(left[q][k], right[k][v], sums[q][v])` for `count` rows of `right`, in order.
#[inline(always)]
pub(super) fn multiply<S: Simd, R: Vectors<S>, const Q: usize, const V: usize>(
    s: S,
    left: &[&[f32]; Q],
    right: R,
    count: usize,
    sums: &mut [[S::F; V]; Q],
) {
    assert!(left.iter().all(|row| count <= row.len()) && right.holds(count, V), "beyond a block");
    // A copy stays in registers.
    let mut totals = *sums;
    for k in 0..count {
        right.look_ahead(s, k, count);
        // SAFETY: the assertion.
        unsafe {
            let mut row = [s.splat(0.0); V];
            for (v, vector) in row.iter_mut().enumerate() {
                *vector = right.get(s, k, v);
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

/// Makes the keys of a block f32: for each run of `V` panels, a row of `V` vectors for each column.
#[inline(always)]
pub(super) fn unpack_keys<S: Simd, const V: usize>(
    s: S,
    cache: CacheType,
    words: &[u32],
    columns: usize,
    out: &mut [f32],
) {
    for (run, out) in out.chunks_exact_mut(columns * V * PANEL).enumerate().take(BLOCK / PANEL / V) {
        let keys = Cached::keys(cache, words, columns, run * V);
        unpack::<S, V>(s, keys, columns, out);
    }
}

/// Makes `count` rows of `V` vectors f32.
#[inline(always)]
pub(super) fn unpack<S: Simd, const V: usize>(s: S, from: Cached<'_>, count: usize, out: &mut [f32]) {
    assert!(Vectors::<S>::holds(from, count, V), "beyond a block");
    for (k, row) in out.as_chunks_mut::<16>().0.chunks_exact_mut(V).enumerate().take(count) {
        for (v, vector) in row.iter_mut().enumerate() {
            // SAFETY: the assertion.
            s.store(unsafe { from.get(s, k, v) }, vector);
        }
    }
}
