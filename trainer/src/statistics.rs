//! Statistics of tensors: of the outputs of operations, and of gradients.

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::parameters::{Gradients, Parameters};
use crate::program::Program;
use crate::real::Real;
use crate::runner::{NodeEvent, Phase, Probe};

/// The range of exponents in a histogram: smaller magnitudes count as zero, larger ones as the last power of two.
const MIN_EXPONENT: i32 = -32;
const MAX_EXPONENT: i32 = 16;
/// The number of exponents.
const POWERS: usize = (MAX_EXPONENT - MIN_EXPONENT + 1) as usize;
/// Elements that are processed sequentially: fixed, so that sums do not depend on the number of threads.
const CHUNK: usize = 1 << 14;

/// Statistics of some values.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueStatistics {
    /// The number of values.
    pub count: u64,
    /// The sum of the finite values.
    pub sum: f64,
    /// The sum of their squares.
    pub sum_of_squares: f64,
    /// The smallest and the largest of them.
    pub bounds: [f64; 2],
    /// The number of zeros.
    pub zeros: u64,
    /// The number of non-finite values.
    pub non_finite: u64,
    /// The histogram: counts of negative values by exponent, of nearly zero values, and of positive values by
    /// exponent.
    histogram: [[u64; POWERS]; 2],
    small: u64,
}

impl Default for ValueStatistics {
    fn default() -> Self {
        Self {
            count: 0,
            sum: 0.0,
            sum_of_squares: 0.0,
            bounds: [f64::INFINITY, f64::NEG_INFINITY],
            zeros: 0,
            non_finite: 0,
            histogram: [[0; POWERS]; 2],
            small: 0,
        }
    }
}

impl ValueStatistics {
    /// Computes the statistics of some values.
    pub fn of<T: Real>(numbers: &[T]) -> Self {
        let mut all = Self::default();
        all.add(numbers);
        all
    }

    /// Adds values.
    pub fn add<T: Real>(&mut self, numbers: &[T]) {
        let chunk = |numbers: &[T]| {
            let mut own = Self::default();
            numbers.iter().for_each(|number| own.push(number.f64()));
            own
        };
        let parts: Vec<Self> = numbers.par_chunks(CHUNK).map(chunk).collect();
        parts.iter().for_each(|part| self.merge(part));
    }

    fn push(&mut self, number: f64) {
        self.count += 1;
        if !number.is_finite() {
            self.non_finite += 1;
            return;
        }
        self.zeros += u64::from(number == 0.0);
        self.sum += number;
        self.sum_of_squares += number * number;
        self.bounds = [self.bounds[0].min(number), self.bounds[1].max(number)];
        // The exponent of an f64; that of zero is far below all others.
        let power = (number.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        match power < MIN_EXPONENT {
            true => self.small += 1,
            false => {
                self.histogram[usize::from(number > 0.0)]
                    [(power.min(MAX_EXPONENT) - MIN_EXPONENT) as usize] += 1;
            }
        }
    }

    /// Adds other statistics.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.bounds = [self.bounds[0].min(other.bounds[0]), self.bounds[1].max(other.bounds[1])];
        self.zeros += other.zeros;
        self.non_finite += other.non_finite;
        self.small += other.small;
        for (own, other) in self.histogram.iter_mut().flatten().zip(other.histogram.iter().flatten()) {
            *own += other;
        }
    }

    fn finite(&self) -> f64 {
        (self.count - self.non_finite).max(1) as f64
    }

    /// Returns the mean of the finite values.
    pub fn mean(&self) -> f64 {
        self.sum / self.finite()
    }

    /// Returns their root mean square.
    pub fn rms(&self) -> f64 {
        (self.sum_of_squares / self.finite()).sqrt()
    }

    /// Returns the largest magnitude.
    pub fn max_abs(&self) -> f64 {
        if self.count == self.non_finite { 0.0 } else { self.bounds[0].abs().max(self.bounds[1].abs()) }
    }

    /// Returns the fraction of zeros.
    pub fn zero_fraction(&self) -> f64 {
        self.zeros as f64 / self.count.max(1) as f64
    }

    /// Returns the fraction of non-finite values.
    pub fn non_finite_fraction(&self) -> f64 {
        self.non_finite as f64 / self.count.max(1) as f64
    }

    /// Returns the statistics as a value of a log.
    pub fn json(&self) -> Value {
        json!({
            "mean": self.mean(), "rms": self.rms(), "max_abs": self.max_abs(),
            "zero_fraction": self.zero_fraction(), "non_finite_fraction": self.non_finite_fraction(),
        })
    }

    /// Returns the histogram in ascending order: the upper limit of each bin, and its count. Leading and trailing
    /// empty bins are omitted, except one at the start.
    pub fn histogram(&self) -> Vec<(f64, u64)> {
        let limit = |power: i32| 2.0_f64.powi(power);
        let powers = MIN_EXPONENT..=MAX_EXPONENT;
        let negative = powers
            .clone()
            .rev()
            .map(|power| (-limit(power), self.histogram[0][(power - MIN_EXPONENT) as usize]));
        let positive =
            powers.map(|power| (limit(power + 1), self.histogram[1][(power - MIN_EXPONENT) as usize]));
        let all: Vec<(f64, u64)> =
            negative.chain([(limit(MIN_EXPONENT), self.small)]).chain(positive).collect();
        let full = |(_, count): &(f64, u64)| *count > 0;
        let (Some(first), Some(last)) = (all.iter().position(full), all.iter().rposition(full)) else {
            return Vec::new();
        };
        all[first.saturating_sub(1)..=last].to_vec()
    }
}

/// The tensor statistics of a step, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepStatistics {
    /// The number of steps so far.
    pub step: u64,
    /// Outputs of operations.
    pub outputs: Vec<(String, ValueStatistics)>,
    /// Gradients of tensors, before clipping.
    pub gradients: Vec<(String, ValueStatistics)>,
}

impl StepStatistics {
    /// Returns the statistics as a line of a log.
    pub fn json(&self) -> Value {
        let list = |list: &[(String, ValueStatistics)]| -> Value {
            list.iter().map(|(name, statistics)| (name.clone(), statistics.json())).collect()
        };
        json!({"step": self.step, "outputs": list(&self.outputs), "gradients": list(&self.gradients)})
    }

    /// Returns all of them with unique names.
    pub fn all(&self) -> impl Iterator<Item = (String, &ValueStatistics)> {
        let outputs = self.outputs.iter().map(|(name, own)| (format!("output/{name}"), own));
        outputs.chain(self.gradients.iter().map(|(name, own)| (format!("gradient/{name}"), own)))
    }
}

/// Collects statistics of outputs.
#[derive(Debug, Default)]
pub(crate) struct OutputStatistics {
    list: Vec<Option<ValueStatistics>>,
}

impl OutputStatistics {
    /// Adds a part of a node's output.
    pub(crate) fn add<T: Real>(&mut self, node: usize, numbers: &[T]) {
        if self.list.len() <= node {
            self.list.resize(node + 1, None);
        }
        self.list[node].get_or_insert_default().add(numbers);
    }

    /// Combines them with the gradients of the same step.
    pub(crate) fn with(
        self,
        step: u64,
        program: &Program,
        parameters: &Parameters<f32>,
        gradients: &Gradients<f32>,
    ) -> StepStatistics {
        let named = program.names().into_iter().zip(self.list);
        let outputs = named.filter_map(|(name, statistics)| Some((name, statistics?))).collect();
        let pairs = parameters.list.iter().zip(&gradients.list);
        let own = pairs.filter_map(|(parameter, gradient)| Some((&parameter.name, gradient.as_ref()?)));
        let gradients = own.map(|(name, gradient)| (name.clone(), ValueStatistics::of(gradient))).collect();
        StepStatistics { step, outputs, gradients }
    }
}

impl<T: Real> Probe<T> for OutputStatistics {
    fn node(&mut self, piece: &NodeEvent<'_, T>) {
        if piece.phase == Phase::Forward {
            self.add(piece.number, piece.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_match_a_direct_computation() {
        let numbers = [0.0_f32, -0.0, 3.0, -4.0, f32::NAN, f32::NEG_INFINITY, 1e-20, 1e30];
        let mut own = ValueStatistics::of(&numbers[..4]);
        assert_eq!((own.count, own.zeros, own.non_finite), (4, 2, 0));
        assert_eq!((own.mean(), own.rms(), own.max_abs(), own.zero_fraction()), (-0.25, 2.5, 4.0, 0.5));
        own.add(&numbers[4..6]);
        assert_eq!(
            (own.count, own.non_finite, own.mean(), own.max_abs()),
            (6, 2, -0.25, 4.0),
            "what is finite counts"
        );
        assert_eq!(own.non_finite_fraction(), 2.0 / 6.0);
        own.add(&numbers[6..]);
        let histogram = own.histogram();
        assert!(histogram.windows(2).all(|pair| pair[0].0 < pair[1].0), "{histogram:?}");
        assert_eq!(histogram.iter().map(|(_, count)| count).sum::<u64>(), 6, "all that are finite");
        for (limit, count) in
            [(-4.0, 1), (2.0_f64.powi(MIN_EXPONENT), 3), (4.0, 1), (2.0_f64.powi(MAX_EXPONENT + 1), 1)]
        {
            let found = histogram.iter().find(|(own, _)| *own == limit);
            assert_eq!(found, Some(&(limit, count)));
        }
        assert!(ValueStatistics::default().histogram().is_empty());
        assert_eq!((ValueStatistics::default().max_abs(), ValueStatistics::default().rms()), (0.0, 0.0));
    }

    #[test]
    fn merged_statistics_equal_those_of_the_whole() {
        let numbers: Vec<f32> = (0..40_000).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
        let whole = ValueStatistics::of(&numbers);
        let mut parts = ValueStatistics::of(&numbers[..CHUNK]);
        parts.merge(&ValueStatistics::of(&numbers[CHUNK..]));
        assert_eq!(parts, whole);
        let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / 40_000.0;
        assert!((whole.mean() - mean).abs() < 1e-9);
    }
}
