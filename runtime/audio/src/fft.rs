//! Complex FFT of size 400, mixed-radix: 4, 4, 5 and 5.

use std::array::from_fn;
use std::f64::consts::TAU;

/// The size of the transform.
pub(super) const SIZE: usize = 400;

/// Complex values, split into real and imaginary parts.
pub(super) struct ComplexVector {
    pub(super) real: [f64; SIZE],
    pub(super) imaginary: [f64; SIZE],
}

impl ComplexVector {
    pub(super) fn zero() -> Self {
        Self { real: [0.0; SIZE], imaginary: [0.0; SIZE] }
    }
}

/// The twiddle factors.
pub(super) struct Fft {
    roots: ComplexVector,
}

type Complex = (f64, f64);

impl Fft {
    pub(super) fn new() -> Self {
        let angle = |k: usize| -TAU * k as f64 / SIZE as f64;
        let real = from_fn(|k| libm::cos(angle(k)));
        Self { roots: ComplexVector { real, imaginary: from_fn(|k| libm::sin(angle(k))) } }
    }

    /// Transforms `data` in place: Σⱼ dataⱼ · e^(−2πijk ÷ 400) at k. `spare` is scratch.
    pub(super) fn transform(&self, data: &mut ComplexVector, spare: &mut ComplexVector) {
        self.stage::<4>(data, spare, 1, four);
        self.stage::<4>(spare, data, 4, four);
        self.stage::<5>(data, spare, 16, five);
        self.stage::<5>(spare, data, 80, five);
    }

    /// One radix-`R` stage of a Stockham (self-sorting) FFT: `stride` interleaved transforms of length 400 ÷ `stride`
    /// become `R` times as many, each with 1 ÷ `R` of the length.
    fn stage<const R: usize>(
        &self,
        from: &ComplexVector,
        to: &mut ComplexVector,
        stride: usize,
        butterfly: impl Fn([Complex; R]) -> [Complex; R],
    ) {
        let parts = SIZE / (stride * R);
        let outputs = to.real.chunks_exact_mut(stride * R).zip(to.imaginary.chunks_exact_mut(stride * R));
        for (part, (real, imaginary)) in outputs.enumerate() {
            let place = |i: usize| stride * (part + i * parts);
            let reals: [&[f64]; R] = from_fn(|i| &from.real[place(i)..][..stride]);
            let imaginaries: [&[f64]; R] = from_fn(|i| &from.imaginary[place(i)..][..stride]);
            let roots: [Complex; R] = from_fn(|i| {
                let power = i * part * stride;
                (self.roots.real[power], self.roots.imaginary[power])
            });
            for lane in 0..stride {
                let results = butterfly(from_fn(|i| (reals[i][lane], imaginaries[i][lane])));
                for i in 0..R {
                    let ((a, b), (c, d)) = (results[i], roots[i]);
                    real[i * stride + lane] = a * c - b * d;
                    imaginary[i * stride + lane] = a * d + b * c;
                }
            }
        }
    }
}

fn add(a: Complex, b: Complex) -> Complex {
    (a.0 + b.0, a.1 + b.1)
}

fn subtract(a: Complex, b: Complex) -> Complex {
    (a.0 - b.0, a.1 - b.1)
}

/// Returns −i times a value.
fn turned(a: Complex) -> Complex {
    (a.1, -a.0)
}

#[inline(always)]
fn four([a, b, c, d]: [Complex; 4]) -> [Complex; 4] {
    let (even, odd) = (add(a, c), add(b, d));
    let (rest, side) = (subtract(a, c), turned(subtract(b, d)));
    [add(even, odd), add(rest, side), subtract(even, odd), subtract(rest, side)]
}

#[inline(always)]
fn five([a, b, c, d, e]: [Complex; 5]) -> [Complex; 5] {
    // Cosine and sine of 2π/5 and 4π/5.
    const NEAR: (f64, f64) = (0.309_016_994_374_947_45, 0.951_056_516_295_153_5);
    const FAR: (f64, f64) = (-0.809_016_994_374_947_5, 0.587_785_252_292_473_1);
    let scaled = |number: Complex, by: f64| (number.0 * by, number.1 * by);
    let (outer, inner) = (add(b, e), add(c, d));
    let (outer_gap, inner_gap) = (subtract(b, e), subtract(c, d));
    let first = add(a, add(scaled(outer, NEAR.0), scaled(inner, FAR.0)));
    let second = add(a, add(scaled(outer, FAR.0), scaled(inner, NEAR.0)));
    let first_side = turned(add(scaled(outer_gap, NEAR.1), scaled(inner_gap, FAR.1)));
    let second_side = turned(subtract(scaled(outer_gap, FAR.1), scaled(inner_gap, NEAR.1)));
    [
        add(a, add(outer, inner)),
        add(first, first_side),
        add(second, second_side),
        subtract(second, second_side),
        subtract(first, first_side),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transform_is_the_sum_that_defines_it() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        let numbers = ComplexVector { real: from_fn(|_| next()), imaginary: from_fn(|_| next()) };
        let mut data = ComplexVector { real: numbers.real, imaginary: numbers.imaginary };
        Fft::new().transform(&mut data, &mut ComplexVector::zero());
        for k in 0..SIZE {
            let (mut real, mut imaginary) = (0.0, 0.0);
            for j in 0..SIZE {
                let angle = -TAU * (j * k % SIZE) as f64 / SIZE as f64;
                real += numbers.real[j] * libm::cos(angle) - numbers.imaginary[j] * libm::sin(angle);
                imaginary += numbers.real[j] * libm::sin(angle) + numbers.imaginary[j] * libm::cos(angle);
            }
            assert!((data.real[k] - real).abs() < 1e-12, "{k}: {} for {real}", data.real[k]);
            assert!((data.imaginary[k] - imaginary).abs() < 1e-12, "{k}");
        }
    }
}
