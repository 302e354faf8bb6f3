//! Drift: how the prompts of a server differ from those that its model was tested with.
//!
//! The histograms of a baseline are compared with those of the prompts of about the last hour and the last day. Nothing but
//! these histograms is kept.

mod baseline;
mod characters;
mod decayed_weight;
mod embedding;
mod histogram;

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use siskin::serving::PromptInput;
use siskin::{Model, Result};

use crate::prometheus::{write_head, write_line};
use crate::sync::lock;
pub use baseline::{BaselinePrompt, DriftBaseline};
use baseline::{Feature, TokenFrequencies};
use embedding::{EmbeddingMoments, WindowMean};
use histogram::WindowHistogram;

/// The windows, by their names in metrics.
const WINDOWS: [(&str, Duration); 2] =
    [("1h", Duration::from_secs(3600)), ("24h", Duration::from_secs(24 * 3600))];
/// The minimum number of prompts for a reported value.
const MIN_SAMPLES: f64 = 500.0;

/// The prompts of a model, compared with a baseline.
pub(crate) struct DriftMonitor {
    start: Instant,
    model: Model,
    baseline: DriftBaseline,
    frequencies: TokenFrequencies,
    windows: Mutex<Vec<FeatureWindow>>,
    embeddings: Option<EmbeddingDrift>,
}

/// The means of embeddings in each of the windows.
struct EmbeddingDrift {
    baseline: EmbeddingMoments,
    means: Mutex<[WindowMean; WINDOWS.len()]>,
}

struct FeatureWindow {
    feature: Feature,
    name: &'static str,
    histogram: WindowHistogram,
}

impl DriftMonitor {
    /// Compares the prompts of `model` with `baseline`.
    pub(crate) fn new(baseline: DriftBaseline, model: Model) -> Result<Self> {
        baseline.check(&model)?;
        let mut windows = Vec::new();
        for feature in Feature::ALL {
            let Some(histogram) = baseline.histogram(feature, &model) else { continue };
            windows.extend(WINDOWS.map(|(name, time_constant)| {
                let histogram = WindowHistogram::new(histogram.len(), time_constant);
                FeatureWindow { feature, name, histogram }
            }));
        }
        let embeddings = baseline.embedding(&model).cloned().map(|moments| EmbeddingDrift {
            means: Mutex::new(WINDOWS.map(|(_, time)| WindowMean::new(moments.dimensions(), time))),
            baseline: moments,
        });
        let frequencies = baseline.frequencies();
        Ok(Self {
            start: Instant::now(),
            model,
            baseline,
            frequencies,
            windows: Mutex::new(windows),
            embeddings,
        })
    }

    /// Adds a prompt.
    pub(crate) fn observe_prompt(&self, tokens: &[u32]) {
        let length = Some(vec![(baseline::length_bin(tokens.len()), 1.0)]);
        let frequency = self.baseline.frequency_bin(&self.frequencies, tokens).map(|bin| vec![(bin, 1.0)]);
        let shares = baseline::character_shares(&self.model, tokens);
        let characters = shares.map(|shares| shares.into_iter().enumerate().collect());
        for (feature, shares) in [
            (Feature::PromptLength, length),
            (Feature::TokenFrequency, frequency),
            (Feature::Characters, characters),
        ] {
            self.add(feature, &shares.unwrap_or_default());
        }
    }

    /// Adds the mean log-probability of a prompt that was scored.
    pub(crate) fn observe_log_probability(&self, value: f64) {
        let bin = self.baseline.log_probability_bin(value);
        self.add(Feature::LogProbability, &bin.map_or(Vec::new(), |bin| vec![(bin, 1.0)]));
    }

    /// Adds the texts of a request for embeddings.
    pub(crate) fn observe_texts(&self, texts: &[String]) {
        for text in texts {
            if let Ok(tokens) = PromptInput::Text(text.clone()).tokens(&self.model) {
                self.observe_prompt(&tokens);
            }
        }
    }

    /// Adds embeddings; those that were cut are left out.
    pub(crate) fn observe_embeddings(&self, vectors: &[Vec<f32>]) {
        let Some(drift) = &self.embeddings else { return };
        let now = self.start.elapsed();
        let mut means = lock(&drift.means);
        for vector in vectors {
            means.iter_mut().for_each(|mean| mean.add(now, vector));
        }
    }

    fn add(&self, feature: Feature, shares: &[(usize, f64)]) {
        if shares.is_empty() {
            return;
        }
        let now = self.start.elapsed();
        for window in self.windows().iter_mut().filter(|window| window.feature == feature) {
            window.histogram.add(now, shares.iter().copied());
        }
    }

    fn windows(&self) -> MutexGuard<'_, Vec<FeatureWindow>> {
        lock(&self.windows)
    }

    /// Returns the names of the windows, and the distances of embeddings in those that have enough.
    fn distances(&self) -> Vec<(&'static str, f64)> {
        let Some(drift) = &self.embeddings else { return Vec::new() };
        let means = lock(&drift.means);
        let named = WINDOWS.iter().zip(means.iter());
        let has_enough = named.filter(|(_, mean)| mean.sample_count() >= MIN_SAMPLES);
        has_enough.map(|((name, _), mean)| (*name, mean.distance(&drift.baseline))).collect()
    }

    /// Returns the labels of each window of a feature, its number of samples, and its index if there are enough.
    fn indices(&self) -> Vec<(String, f64, Option<f64>)> {
        let index = |window: &FeatureWindow| {
            let labels = format!("feature=\"{}\",window=\"{}\"", window.feature.name(), window.name);
            let samples = window.histogram.sample_count();
            let psi = window.histogram.psi(self.baseline.counts(window.feature));
            (labels, samples, (samples >= MIN_SAMPLES).then_some(psi))
        };
        self.windows().iter().map(index).collect()
    }
}

/// Appends the metrics of all models, given their labels, to a page.
pub(crate) fn write_metrics<'a>(models: impl Iterator<Item = (String, &'a DriftMonitor)>, page: &mut String) {
    let (mut indices, mut samples, mut distances) = (String::new(), String::new(), String::new());
    for (name, drift) in models {
        for (labels, count, index) in drift.indices() {
            write_line(&mut samples, format_args!("siskin_drift_samples{{{name},{labels}}} {count}"));
            if let Some(index) = index {
                write_line(&mut indices, format_args!("siskin_drift_psi{{{name},{labels}}} {index}"));
            }
        }
        for (window, distance) in drift.distances() {
            let series = format!("siskin_drift_embedding_distance{{{name},window=\"{window}\"}}");
            write_line(&mut distances, format_args!("{series} {distance}"));
        }
    }
    for (name, help, lines) in [
        ("psi", "Population stability index of prompts against the baseline.", indices),
        ("samples", "Effective number of prompts in the window.", samples),
        (
            "embedding_distance",
            "Distance of the mean embedding from the baseline's, in deviations.",
            distances,
        ),
    ] {
        write_head(page, &format!("siskin_drift_{name}"), "gauge", help);
        page.push_str(&lines);
    }
}

#[cfg(test)]
mod tests;
