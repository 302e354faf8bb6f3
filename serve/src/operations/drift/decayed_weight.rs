//! The weight of samples that count less and less.

use std::time::Duration;

/// The sum of the weights of samples in an exponential window.
#[derive(Clone, Debug)]
pub(super) struct DecayedWeight {
    /// After this time, a sample counts 1/e.
    time_constant: Duration,
    /// The sum of the weights of all samples, and that of their squares.
    weight: f64,
    squares: f64,
    updated: Duration,
}

impl DecayedWeight {
    pub(super) fn new(time_constant: Duration) -> Self {
        Self { time_constant, weight: 0.0, squares: 0.0, updated: Duration::ZERO }
    }

    /// Adds a sample with the weight 1. Returns the factor by which the earlier ones count less than before.
    pub(super) fn add(&mut self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.updated).as_secs_f64();
        let factor = (-elapsed / self.time_constant.as_secs_f64()).exp();
        self.weight = self.weight * factor + 1.0;
        self.squares = self.squares * factor * factor + 1.0;
        self.updated = self.updated.max(now);
        factor
    }

    /// Returns the sum of the weights.
    pub(super) fn sum(&self) -> f64 {
        self.weight
    }

    /// Returns the effective number of samples.
    pub(super) fn sample_count(&self) -> f64 {
        if self.squares > 0.0 { self.weight * self.weight / self.squares } else { 0.0 }
    }
}
