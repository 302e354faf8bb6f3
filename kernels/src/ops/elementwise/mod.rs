//! Element-wise operations: sums of two rows, a factor and a bias per column, and simple maps.
//!
//! Contract: one rounded operation per element (a fused multiply-add is one), except for the softcap (see
//! `math.rs`).

use crate::float;
use crate::math;
use crate::ops::instantiate::instantiate;
use crate::simd::{Simd, each_vector};

/// An element-wise function with one constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementwiseFunction {
    /// x · constant.
    Scale(f32),
    /// constant · tanh(x / constant).
    Softcap(f32),
    /// x clamped to ± constant.
    Clamp(f32),
}

/// `out = a + b`.
pub type Add = fn(&[f32], &[f32], &mut [f32]);
/// `out = x · weight + bias`, rounded once.
pub type Affine = fn(&[f32], &[f32], &[f32], &mut [f32]);
/// `out = map(x)`.
pub type MapFunction = fn(ElementwiseFunction, &[f32], &mut [f32]);

instantiate!(ADD: Add = "add" add(a: &[f32], b: &[f32], out: &mut [f32]));
instantiate!(AFFINE: Affine = "affine" affine(x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f32]));
instantiate!(MAP: MapFunction = "map" map_body(map: ElementwiseFunction, x: &[f32], out: &mut [f32]));

#[inline(always)]
fn add<S: Simd>(s: S, a: &[f32], b: &[f32], out: &mut [f32]) {
    each_vector!(s, [a, b] => out, s.add(a, b));
}

#[inline(always)]
fn affine<S: Simd>(s: S, x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f32]) {
    each_vector!(s, [x, weight, bias] => out, s.fma(x, weight, bias));
}

#[inline(always)]
fn map_body<S: Simd>(s: S, map: ElementwiseFunction, x: &[f32], out: &mut [f32]) {
    match map {
        ElementwiseFunction::Scale(factor) => each_vector!(s, [x] => out, s.mul(x, s.splat(factor))),
        ElementwiseFunction::Softcap(cap) => each_vector!(s, [x] => out, soft_cap(s, x, cap)),
        ElementwiseFunction::Clamp(limit) => {
            each_vector!(s, [x] => out, s.min(s.splat(limit), s.max(s.splat(-limit), x)));
        }
    }
}

/// Returns cap · tanh(x / cap).
#[inline(always)]
pub(crate) fn soft_cap<S: Simd>(s: S, x: S::F, cap: f32) -> S::F {
    let cap = s.splat(cap);
    s.mul(math::tanh(s, s.div(x, cap)), cap)
}

/// Returns the fused multiply-add of one column.
pub fn reference_affine(x: f32, weight: f32, bias: f32) -> f32 {
    float::fma(x, weight, bias)
}

/// Returns the map in double precision, from the definition.
pub fn reference(map: ElementwiseFunction, x: f64) -> f64 {
    match map {
        ElementwiseFunction::Scale(factor) => x * f64::from(factor),
        ElementwiseFunction::Softcap(cap) => f64::from(cap) * libm::tanh(x / f64::from(cap)),
        ElementwiseFunction::Clamp(limit) => x.clamp(-f64::from(limit), f64::from(limit)),
    }
}
