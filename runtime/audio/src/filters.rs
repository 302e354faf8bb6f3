//! The mel filter bank: triangular filters that sum a power spectrum to mel bands.
//!
//! The mel scale is that of Slaney's Auditory Toolbox: linear with 15 mels up to 1 kHz, and logarithmic above with 27
//! mels per factor of 6.4. Band `b` rises from edge `b` to edge `b + 1` and falls to edge `b + 2`, where the edges are
//! evenly spaced in mels from 0 to 8 kHz; its area is one.

use super::RATE;
use super::fft::SIZE;

/// Frequency bins from zero to the Nyquist frequency.
pub(super) const BINS: usize = SIZE / 2 + 1;

const LINEAR: f64 = 1_000.0 / 15.0;
const LOGARITHMIC: f64 = 27.0;
const FACTOR: f64 = 6.4;

/// The filter weights of each band.
pub(super) struct Filters {
    /// The first bin of each band and its number of weights.
    ranges: Vec<(usize, usize)>,
    weights: Vec<f64>,
}

impl Filters {
    pub(super) fn new(bands: usize) -> Self {
        let highest = mels(f64::from(RATE) / 2.0);
        let edge = |index: usize| hertz(highest * index as f64 / (bands + 1) as f64);
        let (mut ranges, mut weights) = (Vec::with_capacity(bands), Vec::new());
        for band in 0..bands {
            let (left, middle, right) = (edge(band), edge(band + 1), edge(band + 2));
            let weight = |bin: usize| {
                let frequency = bin as f64 * f64::from(RATE) / SIZE as f64;
                let side = ((frequency - left) / (middle - left)).min((right - frequency) / (right - middle));
                side.max(0.0) * 2.0 / (right - left)
            };
            let inside = |bin: &usize| weight(*bin) > 0.0;
            let first = (0..BINS).find(inside).unwrap_or_default();
            let before = weights.len();
            weights.extend((first..BINS).take_while(inside).map(weight));
            ranges.push((first, weights.len() - before));
        }
        Self { ranges, weights }
    }

    /// Returns the number of bands.
    pub(super) fn bands(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the power of each band, from the power of each bin.
    pub(super) fn sums<'a>(&'a self, powers: &'a [f64; BINS]) -> impl Iterator<Item = f64> + 'a {
        let mut weights = self.weights.as_slice();
        self.ranges.iter().map(move |&(first, count)| {
            let (own, rest) = weights.split_at(count);
            weights = rest;
            own.iter().zip(&powers[first..]).map(|(weight, power)| weight * power).sum()
        })
    }
}

fn mels(hertz: f64) -> f64 {
    if hertz < 1_000.0 {
        return hertz / LINEAR;
    }
    15.0 + LOGARITHMIC * libm::log(hertz / 1_000.0) / libm::log(FACTOR)
}

fn hertz(mels: f64) -> f64 {
    if mels < 15.0 {
        return mels * LINEAR;
    }
    1_000.0 * libm::exp(libm::log(FACTOR) * (mels - 15.0) / LOGARITHMIC)
}
