//! Branch-free f32 exponentials, so that loops over them vectorize.

/// Below this, e^x is flushed to zero.
const MIN_EXPONENT: f32 = -87.0;
/// Above this, e^x is infinite.
const MAX_EXPONENT: f32 = 88.7;
/// 1.5 · 2²³: adding it rounds to an integer, which is then in the low bits.
const ROUNDING_OFFSET: f32 = 12_582_912.0;

/// e^x within 2 ULP.
#[inline]
pub(crate) fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const COEFFICIENTS: [f32; 6] =
        [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    // Not `clamp`: NaN must propagate.
    let limited = if x < MIN_EXPONENT { MIN_EXPONENT } else { x };
    let limited = if limited > MAX_EXPONENT { MAX_EXPONENT } else { limited };
    let rounded = limited * std::f32::consts::LOG2_E + ROUNDING_OFFSET;
    let whole = rounded - ROUNDING_OFFSET;
    let rest = limited - whole * LN2_HIGH - whole * LN2_LOW;
    let mut sum = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        sum = sum * rest + coefficient;
    }
    let sum = sum * rest * rest + rest + 1.0;
    // Two factors, since 2^128 overflows an f32.
    let exponent = (rounded.to_bits() as i32).wrapping_sub(ROUNDING_OFFSET.to_bits() as i32);
    let half = exponent >> 1;
    let power = |exponent: i32| f32::from_bits((exponent.wrapping_add(127) as u32) << 23);
    let value = sum * power(half) * power(exponent.wrapping_sub(half));
    let value = if x < MIN_EXPONENT { 0.0 } else { value };
    if x > MAX_EXPONENT { f32::INFINITY } else { value }
}

/// The hyperbolic tangent within 4 ULP.
#[inline]
pub(crate) fn tanh(x: f32) -> f32 {
    let square = x * x;
    // Near zero, a difference of numbers close to one would cancel.
    let series = [62.0 / 2835.0, -17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0_f32];
    let series_value = x * series.iter().fold(-1382.0 / 155_925.0, |sum, factor| sum * square + factor);
    let e = exp(-2.0 * x.abs());
    let exp_value = ((1.0 - e) / (1.0 + e)).copysign(x);
    if square < 0.0625 { series_value } else { exp_value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest error in ULP, over `count` numbers from `first` to `last`.
    fn max_error(first: f32, last: f32, ours: fn(f32) -> f32, truth: fn(f64) -> f64) -> f64 {
        let count = 400_001;
        let at = |i: usize| first + (last - first) * i as f32 / (count - 1) as f32;
        let errors = (0..count).map(|i| {
            let (got, true_value) = (ours(at(i)), truth(f64::from(at(i))));
            let unit = f64::from((true_value as f32).abs().next_up() - (true_value as f32).abs());
            (f64::from(got) - true_value).abs() / unit
        });
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn functions_are_close_to_f64() {
        let cases = [
            ("exp", max_error(-86.9, 88.6, exp, f64::exp), 2.0),
            ("exp near 0", max_error(-1.0, 1.0, exp, f64::exp), 2.0),
            ("tanh", max_error(-12.0, 12.0, tanh, f64::tanh), 4.0),
            ("tanh near 0", max_error(-0.3, 0.3, tanh, f64::tanh), 4.0),
            ("tanh at 0", max_error(1e-12, 1e-6, tanh, f64::tanh), 1.0),
        ];
        for (name, error, max_error) in cases {
            assert!(error <= max_error, "{name}: {error:.2} units in the last place");
        }
    }

    #[test]
    fn extreme_inputs_give_the_limits() {
        assert_eq!(exp(-100.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY), tanh(0.0)), (1.0, -1.0, 0.0));
    }
}
