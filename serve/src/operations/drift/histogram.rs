//! Histograms with exponential windows, and the population stability index.

use std::time::Duration;

use super::decayed_weight::DecayedWeight;

/// Added to each count, so that empty bins have a logarithm.
const PSEUDO_COUNT: f64 = 0.5;

/// A histogram in which old samples count less and less.
#[derive(Clone, Debug)]
pub(super) struct WindowHistogram {
    counts: Vec<f64>,
    weight: DecayedWeight,
}

impl WindowHistogram {
    pub(super) fn new(bins: usize, time_constant: Duration) -> Self {
        Self { counts: vec![0.0; bins], weight: DecayedWeight::new(time_constant) }
    }

    /// Adds a sample with the weight 1, of which `shares` are in the bins.
    pub(super) fn add(&mut self, now: Duration, shares: impl IntoIterator<Item = (usize, f64)>) {
        let factor = self.weight.add(now);
        self.counts.iter_mut().for_each(|count| *count *= factor);
        for (bin, share) in shares {
            if let Some(count) = self.counts.get_mut(bin) {
                *count += share;
            }
        }
    }

    /// Returns the effective number of samples.
    pub(super) fn sample_count(&self) -> f64 {
        self.weight.sample_count()
    }

    /// Returns how much the histogram differs from `baseline`, in which the shares of each sample have the sum 1.
    pub(super) fn psi(&self, baseline: &[f64]) -> f64 {
        let samples = baseline.iter().sum();
        // As if all samples had the same weight.
        let own = self.sample_count();
        let sum = self.weight.sum();
        let scale = if sum > 0.0 { own / sum } else { 0.0 };
        let counts: Vec<f64> = self.counts.iter().map(|count| count * scale).collect();
        stability_index(baseline, samples, &counts, own)
    }
}

/// Returns the population stability index of two histograms of `expected_samples` and `actual_samples`, minus what it would be
/// by chance for equal distributions: the sum of (q - p) ln(q / p) over the bins is about a chi-squared variable with one
/// degree of freedom less than bins, divided by the numbers of samples.
fn stability_index(expected: &[f64], expected_samples: f64, actual: &[f64], actual_samples: f64) -> f64 {
    let bins = expected.len() as f64;
    if expected_samples <= 0.0 || actual_samples <= 0.0 {
        return 0.0;
    }
    let share = |count: f64, samples: f64| (count + PSEUDO_COUNT) / (samples + bins * PSEUDO_COUNT);
    let term = |(expected, actual): (&f64, &f64)| {
        let (p, q) = (share(*expected, expected_samples), share(*actual, actual_samples));
        (q - p) * (q / p).ln()
    };
    let index: f64 = expected.iter().zip(actual).map(term).sum();
    let filled = expected.iter().zip(actual).filter(|(expected, actual)| **expected + **actual > 0.0).count();
    let chance = (filled as f64 - 1.0).max(0.0) * (1.0 / expected_samples + 1.0 / actual_samples);
    (index - chance).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_have_an_index_of_zero_and_others_that_of_the_formula() {
        assert_eq!(stability_index(&[10.0, 20.0], 30.0, &[100.0, 200.0], 300.0), 0.0);
        // (0.6 - 0.5) ln 1.2 + (0.4 - 0.5) ln 0.8 = 0.0405; pseudo-counts and chance vanish with many samples.
        let (before, after) = ([5e8, 5e8], [6e8, 4e8]);
        assert!((stability_index(&before, 1e9, &after, 1e9) - 0.040_547).abs() < 1e-6);
        assert!(stability_index(&[500.0, 0.0], 500.0, &[0.0, 500.0], 500.0) > 10.0);
        assert_eq!(stability_index(&[5.0], 5.0, &[0.0], 0.0), 0.0, "no samples");
    }

    #[test]
    fn old_samples_fade() {
        let at = Duration::from_secs;
        let mut window = WindowHistogram::new(2, at(3600));
        (0..1000).for_each(|_| window.add(at(0), [(0, 1.0)]));
        assert!((window.sample_count() - 1000.0).abs() < 1e-6);
        assert!(window.psi(&[1000.0, 0.0]) < 0.001);
        // Ten hours later.
        (0..1000).for_each(|_| window.add(at(36_000), [(1, 1.0)]));
        assert!(window.psi(&[1000.0, 0.0]) > 5.0);
        assert!(window.psi(&[0.0, 1000.0]) < 0.01);
        // At a steady rate, the number of samples is about twice that of a time constant.
        let mut window = WindowHistogram::new(1, at(100));
        (0..10_000).for_each(|second| window.add(at(second), [(0, 1.0)]));
        assert!((window.sample_count() - 200.0).abs() < 2.0, "{}", window.sample_count());
    }
}
