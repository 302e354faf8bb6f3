//! Searches for the scales with the least weighted squared error.
//!
//! Candidates are ranked by their error after a least-squares fit of the scale to the codes that they lead
//! to. The winner is rounded to the stored format and then compared, by its actual error, with the plain
//! choice that maps the largest value to the end of the range.

use super::bit_fields::half;
use half::f16;

/// The integers that codes stand for, before the scale is applied.
pub(super) trait Levels: Copy {
    /// Returns the level nearest to `x`.
    fn level(self, x: f32) -> f32;
    /// Returns the code of the level nearest to `x`.
    fn code(self, x: f32) -> u8;
    /// Returns the lowest and the highest level.
    fn ends(self) -> [f32; 2];
}

/// Integers from the first to the second; code 0 is the first.
#[derive(Clone, Copy)]
pub(super) struct IntegerLevels(pub(super) f32, pub(super) f32);

impl Levels for IntegerLevels {
    #[inline(always)]
    fn level(self, x: f32) -> f32 {
        nearest(x.max(self.0).min(self.1))
    }

    #[inline(always)]
    fn code(self, x: f32) -> u8 {
        (self.level(x) - self.0) as u8
    }

    fn ends(self) -> [f32; 2] {
        [self.0, self.1]
    }
}

/// Levels of an ascending table.
#[derive(Clone, Copy)]
pub(super) struct TableLevels(pub(super) &'static [i8; 16]);

impl Levels for TableLevels {
    #[inline(always)]
    fn level(self, x: f32) -> f32 {
        // A sum of steps instead of a lookup, so that it vectorizes.
        self.0.windows(2).fold(f32::from(self.0[0]), |level, pair| {
            let (low, high) = (f32::from(pair[0]), f32::from(pair[1]));
            level + if x + x > low + high { high - low } else { 0.0 }
        })
    }

    #[inline(always)]
    fn code(self, x: f32) -> u8 {
        let above = |pair: &[i8]| u8::from(x + x > f32::from(pair[0]) + f32::from(pair[1]));
        self.0.windows(2).map(above).sum()
    }

    fn ends(self) -> [f32; 2] {
        [f32::from(self.0[0]), f32::from(self.0[15])]
    }
}

/// Rounds to the nearest integer, ties to even. Correct for |x| < 2^22.
#[inline(always)]
pub(super) fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT) - SHIFT
}

/// Returns 1 / x, and 0 for 0.
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Returns the bits of the finite f16 nearest to `x`; 0 for NaN.
pub(super) fn half_bits(x: f32) -> u16 {
    let x = if x.is_nan() { 0.0 } else { x.clamp(-65504.0, 65504.0) };
    f16::from_f32(x).to_bits()
}

/// Importance weights of up to 256 values, sanitized: none is below a small fraction of the mean, and all are
/// equal if there are none or if their mean is not positive and finite.
pub(super) struct ImportanceWeights([f32; 256]);

impl ImportanceWeights {
    pub(super) fn new(given: Option<&[f32]>) -> Self {
        let mut weights = ImportanceWeights([1.0; 256]);
        let Some(given) = given else { return weights };
        let mean = given.iter().sum::<f32>() / given.len() as f32;
        if mean > 0.0 && mean.is_finite() {
            for (weight, &given) in weights.0.iter_mut().zip(given) {
                *weight = (given / mean).max(1e-4);
            }
        }
        weights
    }

    /// Returns the weights from value `start` on.
    pub(super) fn from(&self, start: usize) -> &[f32] {
        &self.0[start..]
    }
}

/// Returns the value of largest magnitude.
pub(super) fn peak(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |peak: f32, &x| if x.abs() > peak.abs() { x } else { peak })
}

/// Returns Σ w·x·l and Σ w·l² for the levels nearest to `x · inverse`.
#[inline(always)]
fn moments<L: Levels>(values: &[f32], weights: &[f32], levels: L, inverse: f32) -> (f32, f32) {
    let (mut cross, mut square) = ([0.0f32; 8], [0.0f32; 8]);
    for (x, w) in values.as_chunks::<8>().0.iter().zip(weights.as_chunks::<8>().0) {
        for i in 0..8 {
            let level = levels.level(x[i] * inverse);
            cross[i] += w[i] * x[i] * level;
            square[i] += w[i] * level * level;
        }
    }
    (cross.iter().sum(), square.iter().sum())
}

/// Returns Σ w·(x − scale·l − min)² for the nearest levels.
#[inline(always)]
pub(super) fn error<L: Levels>(values: &[f32], weights: &[f32], levels: L, scale: f32, min: f32) -> f32 {
    let inverse = inverse(scale);
    let mut sums = [0.0f32; 8];
    for (x, w) in values.as_chunks::<8>().0.iter().zip(weights.as_chunks::<8>().0) {
        for i in 0..8 {
            let level = levels.level((x[i] - min) * inverse);
            let difference = x[i] - (scale * level + min);
            sums[i] += w[i] * difference * difference;
        }
    }
    sums.iter().sum()
}

/// Writes the codes of the nearest levels.
#[inline(always)]
pub(super) fn put_codes<L: Levels>(values: &[f32], levels: L, scale: f32, min: f32, codes: &mut [u8]) {
    let inverse = inverse(scale);
    for (code, &x) in codes.iter_mut().zip(values) {
        *code = levels.code((x - min) * inverse);
    }
}

/// Range of multiples of the end of the range that the peak is mapped to in the search.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) from: f32,
    pub(super) to: f32,
    pub(super) steps: usize,
}

/// Searches for the scale, of either sign, for values without a minimum.
pub(super) fn symmetric<L: Levels>(values: &[f32], weights: &[f32], levels: L, reach: Reach) -> f32 {
    let peak = peak(values);
    let (mut best, mut best_gain) = (0.0, 0.0);
    if peak == 0.0 {
        return best;
    }
    for end in levels.ends() {
        for step in 0..=reach.steps {
            let part = reach.from + (reach.to - reach.from) * step as f32 / reach.steps as f32;
            let (cross, square) = moments(values, weights, levels, end * part / peak);
            let gain = cross * cross / square;
            if gain > best_gain {
                (best, best_gain) = (cross / square, gain);
            }
        }
    }
    for _ in 0..2 {
        let (cross, square) = moments(values, weights, levels, inverse(best));
        if cross * cross / square > best_gain {
            (best, best_gain) = (cross / square, cross * cross / square);
        }
    }
    best
}

/// Returns the f16 scale of one block: the searched one, or the plain one if that is better after rounding.
pub(super) fn symmetric_half<L: Levels>(values: &[f32], weights: &[f32], levels: L, reach: Reach) -> u16 {
    let mut best = (f32::INFINITY, 0);
    let plain = peak(values) / levels.ends()[0];
    for scale in [symmetric(values, weights, levels, reach), plain, -plain] {
        let bits = half_bits(scale);
        let error = error(values, weights, levels, half(bits), 0.0);
        if error < best.0 {
            best = (error, bits);
        }
    }
    best.1
}

/// Weighted sums of the least-squares fit of x ≈ scale·l + min.
struct Affine {
    weight: f32,
    level: f32,
    square: f32,
    value: f32,
    cross: f32,
}

impl Affine {
    #[inline(always)]
    fn new(values: &[f32], weights: &[f32], levels: IntegerLevels, inverse: f32, min: f32) -> Self {
        let mut sums = [[0.0f32; 8]; 5];
        for (x, w) in values.as_chunks::<8>().0.iter().zip(weights.as_chunks::<8>().0) {
            for i in 0..8 {
                let level = levels.level((x[i] - min) * inverse);
                sums[0][i] += w[i];
                sums[1][i] += w[i] * level;
                sums[2][i] += w[i] * level * level;
                sums[3][i] += w[i] * x[i];
                sums[4][i] += w[i] * x[i] * level;
            }
        }
        let [weight, level, square, value, cross] = sums.map(|sums| sums.iter().sum());
        Self { weight, level, square, value, cross }
    }

    /// Returns the scale and minimum with the least error, and how much of Σ w·x² they explain.
    fn solve(&self, may_rise: bool) -> (f32, f32, f32) {
        let determinant = self.weight * self.square - self.level * self.level;
        let scale = (self.weight * self.cross - self.level * self.value) / determinant;
        let min = (self.square * self.value - self.level * self.cross) / determinant;
        if determinant > 0.0 && (may_rise || min <= 0.0) {
            return (scale, min, scale * self.cross + min * self.value);
        }
        (self.cross / self.square, 0.0, self.cross * self.cross / self.square)
    }
}

/// Searches for scale and minimum for codes from 0 to `top`; the minimum is at most 0 unless it `may_rise`.
pub(super) fn affine(values: &[f32], weights: &[f32], top: f32, may_rise: bool) -> (f32, f32) {
    let (low, high) =
        values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let low = if may_rise { low } else { low.min(0.0) };
    if high <= low || !(high - low).is_finite() {
        return (0.0, low.max(f32::MIN));
    }
    let levels = IntegerLevels(0.0, top);
    let mut best = ((high - low) / top, low, 0.0);
    for step in 0..=20 {
        let reach = top * (1.0 + 0.25 * (step as f32 - 6.0) / top / 2.0);
        let found = Affine::new(values, weights, levels, reach / (high - low), low).solve(may_rise);
        if found.2 > best.2 && found.0 > 0.0 {
            best = found;
        }
    }
    for _ in 0..3 {
        let found = Affine::new(values, weights, levels, inverse(best.0), best.1).solve(may_rise);
        if found.2 > best.2 && found.0 > 0.0 {
            best = found;
        }
    }
    (best.0, best.1)
}

/// Returns the f16 scale and minimum of one block: the searched ones, or the plain ones if those are better
/// after rounding.
pub(super) fn affine_half(values: &[f32], weights: &[f32], top: f32) -> (u16, u16) {
    let (low, high) =
        values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)));
    let levels = IntegerLevels(0.0, top);
    let (scale, min) = affine(values, weights, top, true);
    let rounded = half(half_bits(min));
    // The minimum was rounded to f16: fit the scale to the rounded minimum.
    let sums = Affine::new(values, weights, levels, inverse(scale), rounded);
    let suited = (sums.cross - rounded * sums.level) / sums.square;
    let mut best = (f32::INFINITY, (0, half_bits(low)));
    for (scale, min) in [(scale, min), (suited, min), ((high - low) / top, low)] {
        let bits = (half_bits(scale), half_bits(min));
        let error = error(values, weights, levels, half(bits.0), half(bits.1));
        if error < best.0 {
            best = (error, bits);
        }
    }
    best.1
}
