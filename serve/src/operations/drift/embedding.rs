//! Embeddings: how far their mean is from that of a baseline.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::decayed_weight::DecayedWeight;

/// The mean and the variance of each dimension of embeddings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmbeddingMoments {
    samples: f64,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

/// The exponential mean of embeddings.
#[derive(Clone, Debug)]
pub(super) struct WindowMean {
    sums: Vec<f64>,
    weight: DecayedWeight,
}

impl EmbeddingMoments {
    /// `None` if there are too few for a variance, or of different lengths.
    pub(super) fn of(embeddings: &[&[f32]]) -> Option<Self> {
        let dimensions = embeddings.first()?.len();
        if embeddings.len() < 2 || embeddings.iter().any(|embedding| embedding.len() != dimensions) {
            return None;
        }
        let samples = embeddings.len() as f64;
        let sum = |value: &dyn Fn(usize, f64) -> f64| {
            let of =
                |dimension| embeddings.iter().map(move |one| value(dimension, f64::from(one[dimension])));
            (0..dimensions).map(|dimension| of(dimension).sum::<f64>()).collect::<Vec<f64>>()
        };
        let mean: Vec<f64> = sum(&|_, value| value).iter().map(|sum| sum / samples).collect();
        let variance = sum(&|dimension, value| (value - mean[dimension]).powi(2));
        let variance = variance.iter().map(|sum| sum / (samples - 1.0)).collect();
        Some(Self { samples, mean, variance })
    }

    pub(super) fn is_valid(&self) -> bool {
        self.mean.len() == self.variance.len()
            && self.samples >= 2.0
            && self.samples.is_finite()
            && self.mean.iter().all(|mean| mean.is_finite())
            && self.variance.iter().all(|variance| variance.is_finite() && *variance >= 0.0)
    }

    pub(super) fn dimensions(&self) -> usize {
        self.mean.len()
    }
}

impl WindowMean {
    pub(super) fn new(dimensions: usize, time_constant: Duration) -> Self {
        Self { sums: vec![0.0; dimensions], weight: DecayedWeight::new(time_constant) }
    }

    pub(super) fn add(&mut self, now: Duration, embedding: &[f32]) {
        if embedding.len() != self.sums.len() || embedding.iter().any(|value| !value.is_finite()) {
            return;
        }
        let factor = self.weight.add(now);
        self.sums.iter_mut().zip(embedding).for_each(|(sum, value)| *sum = *sum * factor + f64::from(*value));
    }

    /// Returns the effective number of embeddings.
    pub(super) fn sample_count(&self) -> f64 {
        self.weight.sample_count()
    }

    /// Returns the distance of the mean from that of a baseline in standard deviations, as the root of the mean square over the
    /// dimensions, minus what it would be by chance.
    pub(super) fn distance(&self, baseline: &EmbeddingMoments) -> f64 {
        let samples = self.sample_count();
        if samples <= 0.0 || self.sums.is_empty() {
            return 0.0;
        }
        let square = |(index, sum): (usize, &f64)| {
            let difference = sum / self.weight.sum() - baseline.mean[index];
            // A constant dimension is ignored.
            let variance = baseline.variance[index];
            if variance > 0.0 { difference * difference / variance } else { 0.0 }
        };
        let mean = self.sums.iter().enumerate().map(square).sum::<f64>() / self.sums.len() as f64;
        (mean - 1.0 / samples - 1.0 / baseline.samples).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Embeddings with means of `shift` and standard deviations of 1/√12.
    fn embeddings(seed: u64, shift: f32) -> Vec<Vec<f32>> {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..1000).map(|_| (0..32).map(|_| random() + shift).collect()).collect()
    }

    #[test]
    fn distances_are_in_standard_deviations() {
        let known = embeddings(1, 0.0);
        let moments = EmbeddingMoments::of(&known.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        assert!(moments.is_valid() && moments.dimensions() == 32);
        for (shift, expected) in [(0.0, 0.0), (0.5, 0.5 * 12_f64.sqrt())] {
            let mut window = WindowMean::new(32, Duration::from_secs(3600));
            embeddings(2, shift).iter().for_each(|one| window.add(Duration::ZERO, one));
            window.add(Duration::ZERO, &[1.0]);
            assert_eq!(window.sample_count(), 1000.0, "others have another length");
            assert!((window.distance(&moments) - expected).abs() < 0.05, "{}", window.distance(&moments));
        }
        assert!(EmbeddingMoments::of(&[&[1.0]]).is_none());
        assert!(EmbeddingMoments::of(&[&[1.0], &[1.0, 2.0]]).is_none());
    }
}
