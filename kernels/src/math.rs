//! Exponential and functions derived from it, sixteen lanes at a time, with the same bits on every machine.

use crate::simd::Simd;

/// Below this, e^x is flushed to zero: the smallest normal number is e^−87.336.
const LOWEST: f32 = -87.0;
/// Above this, e^x saturates at e^88, short of infinity.
const HIGHEST: f32 = 88.0;

/// Returns e^x, within 1.5 units in the last place from −87 to 88; 0 below, e^88 above, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let [value] = exp_each(s, [x]);
    value
}

/// [`exp`] of `N` vectors.
#[inline(always)]
pub(crate) fn exp_each<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    let mut within = x;
    for i in 0..N {
        // `min` and `max` return the second operand if it is NaN.
        within[i] = s.min(s.splat(HIGHEST), s.max(s.splat(LOWEST), x[i]));
    }
    let mut value = exp_within(s, within);
    for i in 0..N {
        value[i] = s.select_less(x[i], s.splat(LOWEST), s.splat(0.0), value[i]);
    }
    value
}

/// [`exp`] of `N` vectors that lie between its bounds. The vectors are interleaved at each step to hide the
/// latency of the multiply-add chain.
#[inline(always)]
fn exp_within<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const COEFFICIENTS: [f32; 6] =
        [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let mut value = x;
    let (mut n, mut r) = ([s.splat_int(0); N], x);
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
    }
    value
}

/// Returns 1 / (1 + e^−x) for `N` vectors.
#[inline(always)]
pub(crate) fn sigmoid_each<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let mut value = x;
    for value in &mut value {
        *value = s.sub(zero, *value);
    }
    value = exp_each(s, value);
    for value in &mut value {
        *value = s.div(one, s.add(one, *value));
    }
    value
}

/// Returns the hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let e = exp(s, s.mul(s.abs(x), s.splat(-2.0)));
    let magnitude = s.div(s.sub(one, e), s.add(one, e));
    let zero = s.splat(0.0);
    s.select_less(x, zero, s.sub(zero, magnitude), magnitude)
}

/// Returns the GELU x · (1 + erf(x/√2)) / 2 for `N` vectors, within 10⁻⁷ of the larger of 1 and |x|. Computed
/// as max(x, 0) − |x| · (1 − erf(|x|/√2)) / 2.
///
/// The second factor is `e^(|x| · p(|x|) − ln 2)` with a polynomial fitted to minimize the largest error of
/// the result. |x| is clamped to 10, where the term is negligible.
#[inline(always)]
pub(crate) fn gelu_each<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    const COEFFICIENTS: [f32; 8] = [
        -1.318_411_8e-6,
        1.944_759_4e-5,
        -9.113_032e-5,
        -1.885_884_4e-4,
        5.022_143e-3,
        -3.647_868e-2,
        -3.182_669_6e-1,
        -7.978_893_5e-1,
    ];
    let (mut magnitude, mut exponent) = (x, x);
    for i in 0..N {
        // `min` returns the second operand if it is NaN.
        magnitude[i] = s.min(s.splat(10.0), s.abs(x[i]));
        exponent[i] = s.splat(COEFFICIENTS[0]);
    }
    for coefficient in COEFFICIENTS[1..].iter().chain(&[-core::f32::consts::LN_2]) {
        for i in 0..N {
            exponent[i] = s.fma(exponent[i], magnitude[i], s.splat(*coefficient));
        }
    }
    let mut value = exp_within(s, exponent);
    for i in 0..N {
        value[i] = s.sub(s.max(s.splat(0.0), x[i]), s.mul(magnitude[i], value[i]));
    }
    value
}
