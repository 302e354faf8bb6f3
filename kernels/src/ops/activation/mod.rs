//! Element-wise activation functions, and gated activations: `function(gate) · up`.
//!
//! Contract: all functions are built on one polynomial for the exponential (see `math.rs`), lane by lane.

pub use crate::functions::{ActivationFunction, GateLimits};
use crate::math;
use crate::ops::instantiate::instantiate;
use crate::simd::{Simd, each_run};

/// `out = function(x)`.
pub type Activate = fn(ActivationFunction, &[f32], &mut [f32]);
/// `out = function(gate) · up`.
pub type Gate = fn(ActivationFunction, &[f32], &[f32], &mut [f32]);

instantiate!(ACTIVATE: Activate = "activate" activate(kind: ActivationFunction, x: &[f32], out: &mut [f32]));
instantiate!(GATE: Gate = "gate" gate(kind: ActivationFunction, x: &[f32], up: &[f32], out: &mut [f32]));

#[inline(always)]
fn activate<S: Simd>(s: S, kind: ActivationFunction, x: &[f32], out: &mut [f32]) {
    each_run!(s, [x] => out, function(s, kind, x));
}

#[inline(always)]
fn gate<S: Simd>(s: S, kind: ActivationFunction, x: &[f32], up: &[f32], out: &mut [f32]) {
    each_run!(s, [x, up] => out, multiply(s, function(s, kind, x), up));
}

#[inline(always)]
fn multiply<S: Simd, const N: usize>(s: S, mut a: [S::F; N], b: [S::F; N]) -> [S::F; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = s.mul(*a, b);
    }
    a
}

#[inline(always)]
fn function<S: Simd, const N: usize>(s: S, kind: ActivationFunction, x: [S::F; N]) -> [S::F; N] {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let mut value = x;
    match kind {
        ActivationFunction::Silu => return multiply(s, x, math::sigmoid_each(s, x)),
        ActivationFunction::GeluTanh => {
            const TWICE_ROOT: f32 = 1.595_769_2;
            for x in &mut value {
                let cubic = s.fma(s.mul(s.mul(*x, *x), *x), s.splat(0.044_715), *x);
                *x = s.mul(cubic, s.splat(TWICE_ROOT));
            }
            return multiply(s, x, math::sigmoid_each(s, value));
        }
        ActivationFunction::Gelu => return math::gelu_each(s, x),
        ActivationFunction::Sigmoid => return math::sigmoid_each(s, x),
        ActivationFunction::Relu => {
            for value in &mut value {
                *value = s.max(zero, *value);
            }
        }
        ActivationFunction::EluPlusOne => {
            value = math::exp_each(s, x);
            for (value, x) in value.iter_mut().zip(x) {
                *value = s.select_less(zero, x, s.add(x, one), *value);
            }
        }
    }
    value
}

/// Computes the clamped gate from gate and up.
pub type LimitedGate = fn(GateLimits, &[f32], &[f32], &mut [f32]);

instantiate!(LIMITED_GATE: LimitedGate = "limited-gate" limited_gate(
    limits: GateLimits,
    x: &[f32],
    up: &[f32],
    out: &mut [f32]
));

#[inline(always)]
fn limited_gate<S: Simd>(s: S, limits: GateLimits, x: &[f32], up: &[f32], out: &mut [f32]) {
    each_run!(s, [x, up] => out, limited(s, limits, x, up));
}

#[inline(always)]
fn limited<S: Simd, const N: usize>(
    s: S,
    limits: GateLimits,
    mut gate: [S::F; N],
    up: [S::F; N],
) -> [S::F; N] {
    let (limit, slope, one) = (s.splat(limits.limit), s.splat(limits.slope), s.splat(1.0));
    let mut within = gate;
    for (gate, within) in gate.iter_mut().zip(&mut within) {
        *gate = s.min(limit, *gate);
        *within = s.mul(*gate, slope);
    }
    let mut value = multiply(s, gate, math::sigmoid_each(s, within));
    for (value, up) in value.iter_mut().zip(up) {
        let up = s.min(limit, s.max(s.splat(-limits.limit), up));
        *value = s.mul(s.add(up, one), *value);
    }
    value
}

/// Computes the clamped gate in double precision, from the definition.
pub fn reference_limited(limits: GateLimits, gate: f64, up: f64) -> f64 {
    let (limit, slope) = (f64::from(limits.limit), f64::from(limits.slope));
    let gate = libm::fmin(gate, limit);
    (up.clamp(-limit, limit) + 1.0) * gate / (1.0 + libm::exp(-slope * gate))
}

/// Computes the function in double precision, from the definition. Kernels agree to within a few units in
/// 10⁷.
pub fn reference(kind: ActivationFunction, x: f64) -> f64 {
    match kind {
        ActivationFunction::Silu => x / (1.0 + libm::exp(-x)),
        ActivationFunction::Gelu => 0.5 * x * (1.0 + libm::erf(x * core::f64::consts::FRAC_1_SQRT_2)),
        ActivationFunction::GeluTanh => {
            let inner = libm::sqrt(2.0 / core::f64::consts::PI) * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + libm::tanh(inner))
        }
        ActivationFunction::Relu => libm::fmax(x, 0.0),
        ActivationFunction::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
        ActivationFunction::EluPlusOne => {
            if x > 0.0 {
                x + 1.0
            } else {
                libm::exp(x)
            }
        }
    }
}
