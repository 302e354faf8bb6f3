//! The Hadamard transform of blocks of 64 elements, with which the row types spread outliers before rounding
//! (QuaRot, arXiv:2404.00456).
//!
//! Contract: six stages of `(a + b, a − b)` over elements 1, 2, 4, 8, 16 and 32 apart, in this order, each
//! rounded once. The transform is not normalized: applied twice, it returns the block times 64.

use crate::simd::{LANES, Simd};

/// Elements of a block.
pub const BLOCK: usize = 64;

/// The factor that makes the transform its own inverse: 1 / √[`BLOCK`].
pub const NORMAL: f32 = 0.125;

/// Transforms a block in place.
pub fn transform(block: &mut [f32; BLOCK]) {
    stage(block, 1);
    stage(block, 2);
    stage(block, 4);
    stage(block, 8);
    stage(block, 16);
    stage(block, 32);
}

/// Returns the width of the blocks in which the columns of a head are transformed: the largest power of two up to
/// 128 that divides them.
pub(crate) const fn head_width(columns: usize) -> usize {
    let power = columns.trailing_zeros();
    1 << if power < 7 { power } else { 7 }
}

/// Transforms the columns of a head, a multiple of sixteen, in blocks of [`head_width`] elements. The stages are those
/// of [`transform`], as many as the width has. Not normalized: a dot product of two transformed heads is that of the
/// heads times the width.
#[inline(always)]
pub(crate) fn transform_head<S: Simd>(s: S, columns: &mut [f32]) {
    let vectors = head_width(columns.len()) / LANES;
    for block in columns.as_chunks_mut::<LANES>().0.chunks_exact_mut(vectors) {
        for lanes in &mut *block {
            let x = s.butterfly::<2>(s.butterfly::<1>(s.load(lanes)));
            s.store(s.butterfly::<8>(s.butterfly::<4>(x)), lanes);
        }
        let mut apart = 1;
        while apart < vectors {
            for pair in block.chunks_exact_mut(2 * apart) {
                let (left, right) = pair.split_at_mut(apart);
                for (a, b) in left.iter_mut().zip(right) {
                    let (x, y) = (s.load(a), s.load(b));
                    s.store(s.add(x, y), a);
                    s.store(s.sub(x, y), b);
                }
            }
            apart *= 2;
        }
    }
}

/// Inlined with a constant distance, so that the compiler vectorizes it.
#[inline(always)]
fn stage(block: &mut [f32; BLOCK], apart: usize) {
    for pair in block.chunks_exact_mut(2 * apart) {
        let (left, right) = pair.split_at_mut(apart);
        for (a, b) in left.iter_mut().zip(right) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
}

/// [`transform`] of a block held in vectors.
#[inline(always)]
pub(crate) fn transform_vectors<S: Simd>(s: S, mut x: [S::F; BLOCK / LANES]) -> [S::F; BLOCK / LANES] {
    for x in &mut x {
        *x = s.butterfly::<8>(s.butterfly::<4>(s.butterfly::<2>(s.butterfly::<1>(*x))));
    }
    let (a, b, c, d) = (s.add(x[0], x[1]), s.sub(x[0], x[1]), s.add(x[2], x[3]), s.sub(x[2], x[3]));
    [s.add(a, c), s.add(b, d), s.sub(a, c), s.sub(b, d)]
}

/// Rotates a row: transforms every block and multiplies it by [`NORMAL`]. Applied twice, it restores the row
/// up to rounding. Elements after the last whole block are unchanged.
pub fn rotate(row: &mut [f32]) {
    for block in row.as_chunks_mut().0 {
        transform(block);
        block.iter_mut().for_each(|x| *x *= NORMAL);
    }
}
