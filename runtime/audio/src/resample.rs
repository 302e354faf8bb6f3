//! Resampling to [`RATE`](super::RATE) by a windowed sinc (polyphase) filter.
//!
//! An output is a weighted sum of the inputs around its time. The weights depend on the phase, which is the position of
//! that time between two inputs. For rates in a ratio of small integers there are few phases: each has a row of weights
//! in a table. Otherwise the table has rows close enough to interpolate weights linearly between two of them.
//!
//! The passband ends at 9/10 of the lower of the two Nyquist frequencies; the stopband, with 80 dB of attenuation,
//! begins at that frequency.

use super::{RATE, room_for};
use siskin_format::{Error, Result};
use std::f64::consts::PI;

const LOWEST: u32 = 1_000;
const MAX_SAMPLE_RATE: u32 = 384_000;

/// The half-width of the filter, in samples of the lower rate.
const REACH: f64 = 48.0;
/// The β of the Kaiser window, and the width of the transition band as a fraction of the lower rate, both for 80 dB.
const BETA: f64 = 7.857;
const SLOPE: f64 = 5.02 / (2.0 * REACH);
/// The maximum number of weights of a table without interpolation.
const TABLE: usize = 1 << 16;
/// Rows per sample of the lower rate in a table with interpolation. The error of an interpolated weight is below (π /
/// 512)² / 24 of the largest weight.
const ROWS: f64 = 512.0;

/// Independent partial sums of a dot product.
const LANES: usize = 8;

/// Resamples `samples` from 1 kHz to 384 kHz to [`RATE`](super::RATE): ⌈length × 16000 ÷ `rate`⌉ samples, the first at
/// the time of the first input. NaN and infinity spread to the outputs within the filter's width.
///
/// # Errors
/// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) for other rates, and
/// [`ErrorKind::Memory`](siskin_format::ErrorKind::Memory) if the result cannot be allocated.
pub fn resample(samples: &[f32], rate: u32) -> Result<Vec<f32>> {
    if !(LOWEST..=MAX_SAMPLE_RATE).contains(&rate) {
        let message = format!("a sample rate of {rate} Hz is not between {LOWEST} and {MAX_SAMPLE_RATE}");
        return Err(Error::argument("rate", message));
    }
    let too_long = || Error::argument("samples", "the audio is too long; split it");
    let length = (samples.len() as u64).checked_mul(u64::from(RATE)).ok_or_else(too_long)?;
    let length = usize::try_from(length.div_ceil(u64::from(rate))).map_err(|_| too_long())?;
    let mut output = room_for(length, "samples")?;
    if rate == RATE {
        output.extend_from_slice(samples);
        return Ok(output);
    }
    let table = Table::new(rate);
    let mut edge = vec![0.0; table.taps];
    output.extend((0..length as u64).map(|index| table.at(samples, index, &mut edge)));
    Ok(output)
}

struct Table {
    /// The inputs between two outputs are `step` ÷ `phases`, in lowest terms.
    step: u64,
    phases: u64,
    /// Weights per row.
    taps: usize,
    /// Row `r` is for a time `r` ÷ `rows` after an input; the last row is for the time of the next input.
    rows: u64,
    weights: Vec<f32>,
}

impl Table {
    fn new(rate: u32) -> Self {
        let common = greatest_common_divisor(rate, RATE);
        let (step, phases) = (u64::from(rate / common), u64::from(RATE / common));
        // Inputs per sample of the lower rate.
        let stretch = (f64::from(rate) / f64::from(RATE)).max(1.0);
        let half = libm::ceil(REACH * stretch) as usize;
        let taps = (2 * half).next_multiple_of(LANES);
        let exact = (phases as usize).saturating_mul(taps) <= TABLE;
        let rows = if exact { phases } else { libm::ceil(ROWS / stretch) as u64 };
        let mut weights = Vec::with_capacity((rows as usize + 1) * taps);
        for row in 0..=rows {
            // Tap `t` of a row is for the input `t` − (taps ÷ 2 − 1) after the last one that is not later than the
            // output.
            let first = 1.0 - taps as f64 / 2.0 - row as f64 / rows as f64;
            push_row(&mut weights, taps, first, stretch);
        }
        Self { step, phases, taps, rows, weights }
    }

    /// Returns output `index`; `edge` is scratch for the inputs of outputs at the ends.
    fn at(&self, samples: &[f32], index: u64, edge: &mut [f32]) -> f32 {
        let moment = index * self.step;
        let (before, phase) = ((moment / self.phases) as usize, moment % self.phases);
        let inputs = around(samples, before, edge);
        let scaled = phase * self.rows;
        let (row, between) = ((scaled / self.phases) as usize, scaled % self.phases);
        let here = dot(self.row(row), inputs);
        if between == 0 {
            return here;
        }
        let share = between as f32 / self.phases as f32;
        here + share * (dot(self.row(row + 1), inputs) - here)
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.taps..][..self.taps]
    }
}

/// Returns as many inputs as `edge` has, with input `before` the last of their first half; zeros beyond the ends.
fn around<'a>(samples: &'a [f32], before: usize, edge: &'a mut [f32]) -> &'a [f32] {
    let half = edge.len() / 2 - 1;
    if let Some(inputs) = before.checked_sub(half).and_then(|from| samples.get(from..from + edge.len())) {
        return inputs;
    }
    for (tap, input) in edge.iter_mut().enumerate() {
        let at = (before + tap).checked_sub(half);
        *input = at.and_then(|at| samples.get(at)).copied().unwrap_or(0.0);
    }
    edge
}

fn dot(weights: &[f32], inputs: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let weights = weights.as_chunks::<LANES>().0;
    for (weights, inputs) in weights.iter().zip(inputs.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += weights[lane] * inputs[lane];
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}

/// Appends the weights of `taps` inputs, the first of which is `first` inputs after the output's time. The weights sum
/// to one, so that a constant signal is preserved.
fn push_row(weights: &mut Vec<f32>, taps: usize, first: f64, stretch: f64) {
    let peak = bessel(BETA);
    let weight = |tap: usize| {
        let distance = (first + tap as f64) / stretch;
        let inside = 1.0 - (distance / REACH) * (distance / REACH);
        if inside <= 0.0 {
            return 0.0;
        }
        // The transition band ends at the Nyquist frequency, which is half of the lower rate.
        let width = 1.0 - SLOPE;
        let angle = PI * width * distance;
        let sinc = if distance == 0.0 { 1.0 } else { libm::sin(angle) / angle };
        sinc * bessel(BETA * libm::sqrt(inside)) / peak
    };
    let row: Vec<f64> = (0..taps).map(weight).collect();
    let sum: f64 = row.iter().sum();
    weights.extend(row.iter().map(|weight| (weight / sum) as f32));
}

/// Returns I₀(x), the modified Bessel function of the first kind and order zero.
fn bessel(x: f64) -> f64 {
    let square = x * x / 4.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for k in 1..40 {
        term *= square / f64::from(k * k);
        sum += term;
    }
    sum
}

fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
