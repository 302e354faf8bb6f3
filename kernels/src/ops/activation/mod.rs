//! Element-wise activation functions, and gated activations: `function(gate) · up`.
//!
//! Contract: all functions are built on one polynomial for the exponential (see `math.rs`), lane by lane.

use crate::math;
use crate::simd::{Simd, each_run, instantiate};

/// The activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationFunction {
    /// x · sigmoid(x).
    Silu,
    /// x · (1 + erf(x/√2)) / 2.
    Gelu,
    /// x · sigmoid(2·√(2/π)·(x + 0.044715·x³)), the tanh approximation of the above.
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e^−x).
    Sigmoid,
    /// x + 1 above zero, e^x below.
    EluPlusOne,
}

impl ActivationFunction {
    /// All activation functions.
    pub const ALL: &[Self] =
        &[Self::Silu, Self::Gelu, Self::GeluTanh, Self::Relu, Self::Sigmoid, Self::EluPlusOne];
}

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

/// Limits of a clamped gate: `g · sigmoid(slope · g) · (u + 1)`, with g the gate clamped to at most `limit`
/// and u the up projection clamped to ± `limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateLimits {
    /// Upper bound of the gate, and bound of the magnitude of the up projection.
    pub limit: f32,
    /// Factor in the sigmoid.
    pub slope: f32,
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

#[cfg(test)]
mod tests {
    use super::{ActivationFunction, GateLimits, reference, reference_limited};
    use crate::ops::testing::{bits, tables};

    #[test]
    fn kernels_agree_with_the_definition_and_bit_for_bit_with_each_other() {
        let x: Vec<f32> = (-2003..2003)
            .map(|i| i as f32 * 0.01)
            .chain([90.0, -90.0, 300.0, -300.0, 0.0, 1e30, -1e30])
            .collect();
        let up: Vec<f32> = x.iter().map(|x| 0.5 - x).collect();
        for &kind in ActivationFunction::ALL {
            let mut first: Option<(Vec<u32>, Vec<u32>)> = None;
            for table in tables() {
                let (mut out, mut gated) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                table.activate()(kind, &x, &mut out);
                table.gate()(kind, &x, &up, &mut gated);
                for (i, (&x, &y)) in x.iter().zip(&out).enumerate() {
                    let want = reference(kind, f64::from(x));
                    let within = if kind == ActivationFunction::Gelu { 1e-7 } else { 4e-7 };
                    assert!(
                        (f64::from(y) - want).abs() <= within * want.abs().max(1.0),
                        "{kind:?}({x}) = {y}, not {want}"
                    );
                    assert_eq!(gated[i].to_bits(), (y * up[i]).to_bits());
                }
                let (want, want_gated) = first.get_or_insert_with(|| (bits(&out), bits(&gated)));
                assert_eq!(&bits(&out), want, "{kind:?} on {}", table.cpu().features());
                assert_eq!(&bits(&gated), want_gated, "{kind:?} on {}", table.cpu().features());
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite() {
        for &kind in ActivationFunction::ALL.iter().filter(|&&kind| kind != ActivationFunction::Sigmoid) {
            for table in tables() {
                // Several vectors, one more vector, and a partial vector.
                let (mut x, mut out) = ([1.0; 64 + 16 + 3], [0.0; 64 + 16 + 3]);
                for start in [0, 40, 64, 80] {
                    x[start..start + 3].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
                }
                table.activate()(kind, &x, &mut out);
                for start in [0, 40, 64, 80] {
                    let out = &out[start..start + 3];
                    assert!(out[0].is_nan() && out[1] == f32::INFINITY, "{kind:?}: {out:?}");
                    // Functions that multiply by a sigmoid have an infinite factor.
                    let is_product = matches!(kind, ActivationFunction::Silu | ActivationFunction::GeluTanh);
                    assert!(is_product || out[2].abs() < 1e-30, "{kind:?}: {out:?}");
                }
            }
        }
    }

    #[test]
    fn limited_gates_agree_with_the_definition_and_bit_for_bit_with_each_other() {
        let gate: Vec<f32> = (-1100..1103).map(|i| i as f32 * 0.01).collect();
        let up: Vec<f32> = gate.iter().map(|x| 3.0 - 1.7 * x).collect();
        let limits = GateLimits { limit: 7.0, slope: 1.702 };
        let mut first = None;
        for table in tables() {
            let mut out = vec![0.0; gate.len()];
            table.limited_gate()(limits, &gate, &up, &mut out);
            for ((&gate, &up), &got) in gate.iter().zip(&up).zip(&out) {
                let want = reference_limited(limits, f64::from(gate), f64::from(up));
                assert!((f64::from(got) - want).abs() <= 4e-7 * want.abs().max(1.0), "{gate} {up}");
            }
            assert_eq!(first.get_or_insert_with(|| bits(&out)), &bits(&out));
        }
    }
}
