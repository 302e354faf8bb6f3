//! Rotates rows and quantizes them with one scale per row, for the row types of weights.
//!
//! Contract: the row, padded with zeros to a multiple of 64, is transformed by [`hadamard`](crate::hadamard);
//! `scale = largest |t| / 127 / 8`, `q = round(t · (127 / largest))`, ties to even. A row whose largest
//! magnitude is below 2^−100 becomes all zero.

use super::{QuantizedRowLayout, load, poison_row, scale_of};
use crate::hadamard::{self, BLOCK};
use crate::ops::instantiate::instantiate;
use crate::simd::{LANES, Simd};

/// Vectors per Hadamard block.
const VECTORS: usize = BLOCK / LANES;

instantiate!(LIST: super::Function = "quantize-rotated" body(x: &[f32], out: &mut [i32]));

#[inline(always)]
fn body<S: Simd>(s: S, x: &[f32], out: &mut [i32]) {
    if x.len() <= 16 * BLOCK {
        quantize::<S, 16>(s, x, out);
    } else {
        quantize::<S, 64>(s, x, out);
    }
}

/// Keeps the transform of up to `KEPT` blocks until the scale is known; later blocks are transformed again.
#[inline(always)]
fn quantize<S: Simd, const KEPT: usize>(s: S, x: &[f32], out: &mut [i32]) {
    let layout = QuantizedRowLayout::new(x.len());
    let zero = s.splat(0.0);
    // Stays zero unless an element is not finite.
    let mut poison = [zero; VECTORS];
    let mut largest = [zero; VECTORS];
    // `None`, so that initialization writes little.
    let mut kept = [None; KEPT];
    for (index, block) in x.chunks(BLOCK).enumerate() {
        let vectors = hadamard::transform_vectors(s, load(s, block));
        for i in 0..VECTORS {
            poison[i] = s.add(poison[i], s.mul(vectors[i], zero));
            largest[i] = s.max(largest[i], s.abs(vectors[i]));
        }
        if let Some(kept) = kept.get_mut(index) {
            *kept = Some(vectors);
        }
    }
    let [a, b, c, d] = poison;
    if s.sum(s.add(s.add(a, b), s.add(c, d))) != 0.0 {
        return poison_row(layout, out);
    }
    let [a, b, c, d] = largest;
    let (scale, inverse) = scale_of(s.largest(s.max(s.max(a, b), s.max(c, d))));
    let mut total = 0;
    for (index, block) in x.chunks(BLOCK).enumerate() {
        let vectors = match kept.get(index) {
            Some(Some(kept)) => *kept,
            _ => hadamard::transform_vectors(s, load(s, block)),
        };
        let mut rounded = [s.round(zero); VECTORS];
        for (t, rounded) in vectors.into_iter().zip(&mut rounded) {
            *rounded = s.round(s.mul(t, s.splat(inverse)));
        }
        let mut bytes = [[0; LANES]; VECTORS];
        let sums = s.store_bytes_of_each(rounded, &mut bytes);
        total += put(layout, index, &bytes, sums, out);
    }
    let blocks = x.len().div_ceil(BLOCK);
    out[blocks * BLOCK / 4..layout.scales()].fill(0);
    out[layout.sums() + blocks * VECTORS..layout.words()].fill(0);
    out[layout.scaled_sums()..layout.sums()].fill(0);
    finish(layout, scale, total, out);
}

/// Stores the integers of a block and their sums, and returns the total.
#[inline(always)]
fn put(
    layout: QuantizedRowLayout,
    block: usize,
    bytes: &[[i8; LANES]; VECTORS],
    sums: [i32; VECTORS],
    out: &mut [i32],
) -> i32 {
    let words = &mut out[block * BLOCK / 4..][..BLOCK / 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_flattened().as_chunks::<4>().0) {
        *word = i32::from_le_bytes(bytes.map(|byte| byte as u8));
    }
    out[layout.sums() + VECTORS * block..][..VECTORS].copy_from_slice(&sums);
    sums.iter().sum()
}

/// Stores the scale and the total of the row.
#[inline(always)]
fn finish(layout: QuantizedRowLayout, scale: f32, total: i32, out: &mut [i32]) {
    let scale = scale * hadamard::NORMAL;
    out[layout.scales()..layout.scaled_sums()].fill(scale.to_bits() as i32);
    out[layout.scaled_sums()] = total;
}

/// The scalar reference of the operation.
pub fn reference(x: &[f32], out: &mut [i32]) {
    let layout = QuantizedRowLayout::new(x.len());
    out[..layout.words()].fill(0);
    let transformed = |block: &[f32]| {
        let mut whole = [0.0; BLOCK];
        whole[..block.len()].copy_from_slice(block);
        hadamard::transform(&mut whole);
        whole
    };
    if x.chunks(BLOCK).any(|block| transformed(block).iter().any(|t| !t.is_finite())) {
        return poison_row(layout, out);
    }
    let largest = x.chunks(BLOCK).flat_map(transformed).fold(0.0, |largest: f32, t| largest.max(t.abs()));
    let (scale, inverse) = scale_of(largest);
    let mut total = 0;
    for (index, block) in x.chunks(BLOCK).enumerate() {
        let mut bytes = [[0; LANES]; VECTORS];
        for (bytes, t) in bytes.as_flattened_mut().iter_mut().zip(transformed(block)) {
            *bytes = crate::float::round((t * inverse).clamp(-127.0, 127.0)) as i8;
        }
        let sums = bytes.map(|bytes| bytes.iter().map(|&byte| i32::from(byte)).sum());
        total += put(layout, index, &bytes, sums, out);
    }
    finish(layout, scale, total, out);
}
