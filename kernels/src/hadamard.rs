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
