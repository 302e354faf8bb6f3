//! RoPE, rotary position embedding (arXiv:2104.09864): pair i of a head is its columns i and i + pairs,
//! rotated by the angle of the position.
//!
//! Contract: `(x·cos − y·sin, y·cos + x·sin)`, each as one product and one fused multiply-add. Sines and
//! cosines are computed in double precision with the same result on every machine.

use crate::ops::instantiate::instantiate;
use crate::simd::Simd;

/// Rotates every head of `x` (of `head_size` columns) into `out`: `cos_sin` holds all cosines, then all sines,
/// one for each pair. Columns after the pairs are copied.
pub type Function = fn(cos_sin: &[f32], head_size: usize, x: &[f32], out: &mut [f32]);

instantiate!(LIST: Function = "rope" body(cos_sin: &[f32], head_size: usize, x: &[f32], out: &mut [f32]));

#[inline(always)]
fn body<S: Simd>(s: S, cos_sin: &[f32], head_size: usize, x: &[f32], out: &mut [f32]) {
    let pairs = cos_sin.len() / 2;
    let (cosines, sines) = cos_sin.split_at(pairs);
    for (x, out) in x.chunks_exact(head_size).zip(out.chunks_exact_mut(head_size)) {
        let (first, rest) = x.split_at(pairs);
        let (second, tail) = rest.split_at(pairs);
        let (out_first, out_rest) = out.split_at_mut(pairs);
        let (out_second, out_tail) = out_rest.split_at_mut(pairs);
        out_tail.copy_from_slice(tail);
        for start in (0..pairs).step_by(16) {
            let part = start..(start + 16).min(pairs);
            let (a, b) = (s.load_part(&first[part.clone()], 0.0), s.load_part(&second[part.clone()], 0.0));
            let cosine = s.load_part(&cosines[part.clone()], 0.0);
            let sine = s.load_part(&sines[part.clone()], 0.0);
            let minus = s.sub(s.splat(0.0), b);
            s.store_part(s.fma(a, cosine, s.mul(minus, sine)), &mut out_first[part.clone()]);
            s.store_part(s.fma(b, cosine, s.mul(a, sine)), &mut out_second[part]);
        }
    }
}

/// Fills `cos_sin`, the row of the RoPE table for one position: all cosines, then all sines.
///
/// The angle is rounded to f32 before its sine is taken, as in PyTorch.
pub fn cos_sin(frequencies: &[f32], magnitude: f32, position: u32, cos_sin: &mut [f32]) {
    cos_sin_of(&|pair| frequencies[pair], magnitude, position, &mut cos_sin[..2 * frequencies.len()]);
}

/// [`cos_sin`] with frequencies computed on demand.
pub fn cos_sin_of(frequency: &dyn Fn(usize) -> f32, magnitude: f32, position: u32, cos_sin: &mut [f32]) {
    let (cosines, sines) = cos_sin.split_at_mut(cos_sin.len() / 2);
    for (pair, (cosine, sine)) in cosines.iter_mut().zip(sines).enumerate() {
        let angle = f64::from(position as f32 * frequency(pair));
        let (s, c) = libm::sincos(angle);
        *cosine = (c as f32) * magnitude;
        *sine = (s as f32) * magnitude;
    }
}

/// The scalar reference of the operation.
pub fn reference(cos_sin: &[f32], head_size: usize, x: &[f32], out: &mut [f32]) {
    let pairs = cos_sin.len() / 2;
    out.copy_from_slice(x);
    for (x, out) in x.chunks_exact(head_size).zip(out.chunks_exact_mut(head_size)) {
        for i in 0..pairs {
            let (cosine, sine) = (cos_sin[i], cos_sin[pairs + i]);
            out[i] = crate::float::fma(x[i], cosine, (0.0 - x[i + pairs]) * sine);
            out[i + pairs] = crate::float::fma(x[i + pairs], cosine, x[i] * sine);
        }
    }
}
