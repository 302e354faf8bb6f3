//! Exponentials and what follows from them, sixteen lanes at a time, with one result on every machine.

use crate::simd::Simd;

/// Below this, e^x is taken as zero: the smallest normal number is e^−87.336.
const LOWEST: f32 = -87.0;
/// Above this, e^x stays at e^88, short of infinity.
const HIGHEST: f32 = 88.0;

/// e^x within 1.5 units in the last place from −87 to 88; 0 below, e^88 above, NaN of NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let [value] = exp_each(s, [x]);
    value
}

/// [`exp`] of some vectors. They go through each step together: while one waits for its last step, the processor has
/// those of the others.
#[inline(always)]
pub(crate) fn exp_each<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const COEFFICIENTS: [f32; 6] =
        [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let mut value = x;
    let (mut n, mut r) = ([s.splat_int(0); N], x);
    for i in 0..N {
        // The second operand goes through where it is NaN.
        r[i] = s.min(s.splat(HIGHEST), s.max(s.splat(LOWEST), x[i]));
    }
    for i in 0..N {
        n[i] = s.round(s.mul(r[i], s.splat(core::f32::consts::LOG2_E)));
    }
    for i in 0..N {
        r[i] = s.fma(s.float(n[i]), s.splat(-LN2_HIGH), r[i]);
    }
    for i in 0..N {
        r[i] = s.fma(s.float(n[i]), s.splat(-LN2_LOW), r[i]);
        value[i] = s.splat(COEFFICIENTS[0]);
    }
    for coefficient in &COEFFICIENTS[1..] {
        for i in 0..N {
            value[i] = s.fma(value[i], r[i], s.splat(*coefficient));
        }
    }
    for i in 0..N {
        value[i] = s.fma(s.mul(r[i], r[i]), value[i], r[i]);
    }
    for i in 0..N {
        value[i] = s.mul(s.add(value[i], s.splat(1.0)), s.power_of_two(n[i]));
        value[i] = s.select_less(x[i], s.splat(LOWEST), s.splat(0.0), value[i]);
    }
    value
}

/// 1 / (1 + e^−x).
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), x))))
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let e = exp(s, s.mul(s.abs(x), s.splat(-2.0)));
    let magnitude = s.div(s.sub(one, e), s.add(one, e));
    let zero = s.splat(0.0);
    s.select_less(x, zero, s.sub(zero, magnitude), magnitude)
}

/// The error function, within 1.5e−7 (Abramowitz and Stegun 7.1.26).
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    const COEFFICIENTS: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let magnitude = s.abs(x);
    let t = s.div(one, s.fma(magnitude, s.splat(0.327_591_1), one));
    let mut polynomial = s.splat(COEFFICIENTS[0]);
    for coefficient in &COEFFICIENTS[1..] {
        polynomial = s.fma(polynomial, t, s.splat(*coefficient));
    }
    let decay = exp(s, s.sub(zero, s.mul(magnitude, magnitude)));
    let value = s.sub(one, s.mul(s.mul(polynomial, t), decay));
    s.select_less(x, zero, s.sub(zero, value), value)
}
