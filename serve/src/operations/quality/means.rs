//! Scores of samples, and their exponential means.

use std::collections::HashSet;

use siskin::serving::TokenScore;

use super::QualityMonitor;
use crate::prometheus::{write_head, write_line};

/// The weight of a further sample, once there are many.
const WEIGHT: f64 = 0.02;
/// The length of the token sequences that count as repeated.
const NGRAM: usize = 4;

/// The means over the tokens of a prompt or an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PartScores {
    pub(super) log_probability: f64,
    /// In nats.
    entropy: f64,
}

/// The scores of a sample.
pub(super) struct SampleScores {
    /// `None` for prompts of one token.
    pub(super) prompt: Option<PartScores>,
    pub(super) answer: Option<PartScores>,
    /// `None` for short answers.
    pub(super) repetition: Option<f64>,
    pub(super) is_truncated: bool,
    pub(super) is_structured: bool,
}

/// An exponential mean, or the mean of all samples while there are few.
#[derive(Clone, Copy, Debug, Default)]
struct RunningMean {
    value: f64,
    samples: u64,
}

impl RunningMean {
    fn add(&mut self, value: f64) {
        self.samples += 1;
        self.value += (value - self.value) * (1.0 / self.samples as f64).max(WEIGHT);
    }

    fn get(self) -> Option<f64> {
        (self.samples > 0).then_some(self.value)
    }
}

/// The means over the samples of a model.
#[derive(Clone, Copy, Default)]
pub(super) struct QualityMeans {
    prompt: PartMeans,
    answer: PartMeans,
    repetition: RunningMean,
    truncation: RunningMean,
    /// Of answers that had to follow a grammar.
    incomplete: RunningMean,
    scored: u64,
    pub(super) dropped: u64,
    pub(super) rejected_outputs: u64,
}

#[derive(Clone, Copy, Default)]
struct PartMeans {
    log_probability: RunningMean,
    entropy: RunningMean,
}

impl PartMeans {
    fn add(&mut self, scores: Option<PartScores>) {
        if let Some(scores) = scores {
            self.log_probability.add(scores.log_probability);
            self.entropy.add(scores.entropy);
        }
    }
}

impl QualityMeans {
    pub(super) fn add(&mut self, scores: &SampleScores) {
        self.prompt.add(scores.prompt);
        self.answer.add(scores.answer);
        scores.repetition.iter().for_each(|share| self.repetition.add(*share));
        let truncated = f64::from(u8::from(scores.is_truncated));
        self.truncation.add(truncated);
        if scores.is_structured {
            self.incomplete.add(truncated);
        }
        self.scored += 1;
    }
}

/// Returns the means over tokens; `None` if there are none, or if a log-probability is not finite.
pub(super) fn score_part(tokens: &[TokenScore]) -> Option<PartScores> {
    let count = tokens.len() as f64;
    let mean = |value: &dyn Fn(&TokenScore) -> f64| tokens.iter().map(value).sum::<f64>() / count;
    let scores = PartScores {
        log_probability: mean(&|scored| f64::from(scored.token.log_probability)),
        entropy: mean(&|scored| {
            let top = scored.top.iter().map(|token| f64::from(token.log_probability));
            let (mut entropy, mut rest) = (0.0, 1.0);
            for log_probability in top {
                entropy -= log_probability.exp() * log_probability;
                rest -= log_probability.exp();
            }
            entropy - if rest > 0.0 { rest * rest.ln() } else { 0.0 }
        }),
    };
    (scores.log_probability.is_finite() && scores.entropy.is_finite()).then_some(scores)
}

/// Returns the share of the sequences of four tokens that occurred before; `None` if there are fewer than two.
pub(super) fn repetition(tokens: &[u32]) -> Option<f64> {
    let all = tokens.windows(NGRAM);
    let count = all.len();
    let distinct = all.collect::<HashSet<_>>().len();
    (count > 1).then(|| (count - distinct) as f64 / count as f64)
}

/// The value of a gauge; `None` without samples.
type GaugeValue = fn(&QualityMeans) -> Option<f64>;
/// The gauges: name, further label, help.
const GAUGES: [(&str, &str, &str, GaugeValue); 9] = [
    ("perplexity", ",part=\"prompt\"", "Perplexity of sampled prompts and answers.", |means| {
        means.prompt.log_probability.get().map(|value| (-value).exp())
    }),
    ("perplexity", ",part=\"answer\"", "", |means| {
        means.answer.log_probability.get().map(|value| (-value).exp())
    }),
    ("log_probability", ",part=\"prompt\"", "Mean log-probability of a token in samples.", |means| {
        means.prompt.log_probability.get()
    }),
    ("log_probability", ",part=\"answer\"", "", |means| means.answer.log_probability.get()),
    ("entropy", ",part=\"prompt\"", "Mean entropy of the predictions in samples, in nats.", |means| {
        means.prompt.entropy.get()
    }),
    ("entropy", ",part=\"answer\"", "", |means| means.answer.entropy.get()),
    ("repetition_ratio", "", "Share of repeated sequences of four tokens in sampled answers.", |means| {
        means.repetition.get()
    }),
    ("truncation_ratio", "", "Share of sampled answers that ended at the maximum length.", |means| {
        means.truncation.get()
    }),
    (
        "incomplete_output_ratio",
        "",
        "Share of sampled structured outputs that ended at the maximum length.",
        |means| means.incomplete.get(),
    ),
];

/// Appends the metrics of all models, given their labels, to a page.
pub(crate) fn write_metrics<'a>(
    models: impl Iterator<Item = (String, &'a QualityMonitor)>,
    page: &mut String,
) {
    let models: Vec<(String, QualityMeans)> =
        models.map(|(labels, quality)| (labels, *quality.means())).collect();
    for (name, part, help, of) in GAUGES {
        let name = format!("siskin_quality_{name}");
        if !help.is_empty() {
            write_head(page, &name, "gauge", help);
        }
        for (labels, means) in &models {
            if let Some(value) = of(means) {
                write_line(page, format_args!("{name}{{{labels}{part}}} {value}"));
            }
        }
    }
    type CountOf = fn(&QualityMeans) -> u64;
    let counters: [(&str, &str, CountOf); 3] = [
        ("samples", "Requests that were scored again.", |means| means.scored),
        ("rejected_outputs", "Requests whose grammar or schema was rejected.", |means| {
            means.rejected_outputs
        }),
        ("samples_dropped", "Samples that were not scored: too many waited.", |means| means.dropped),
    ];
    for (name, help, of) in counters {
        let name = format!("siskin_quality_{name}_total");
        write_head(page, &name, "counter", help);
        for (labels, means) in &models {
            write_line(page, format_args!("{name}{{{labels}}} {}", of(means)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin::sample::SampledToken;

    #[test]
    fn repeated_sequences_are_counted() {
        assert_eq!(repetition(&[1, 2, 3, 4]), None);
        assert_eq!(repetition(&[1, 2, 3, 4, 5, 6, 7, 8]), Some(0.0));
        assert_eq!(repetition(&[7; 104]), Some(100.0 / 101.0));
        assert_eq!(repetition(&[1, 2, 3, 4, 1, 2, 3, 4]), Some(0.2));
    }

    #[test]
    fn parts_have_means_over_their_tokens() {
        let token = |probability: f32, top: &[f32]| {
            let sampled = |probability: &f32| SampledToken { id: 0, log_probability: probability.ln() };
            TokenScore { token: sampled(&probability), top: top.iter().map(sampled).collect() }
        };
        let scores = score_part(&[token(0.5, &[0.5, 0.25, 0.25]), token(0.125, &[1.0])]).unwrap();
        let ln2 = std::f64::consts::LN_2;
        assert!((scores.log_probability + 2.0 * ln2).abs() < 1e-6, "{scores:?}");
        assert!((scores.entropy - 0.75 * ln2).abs() < 1e-6, "{scores:?}");
        // The rest of the probability counts as one token.
        let scores = score_part(&[token(0.5, &[0.5])]).unwrap();
        assert!((scores.entropy - ln2).abs() < 1e-6, "{scores:?}");
        assert_eq!(score_part(&[]), None);
        assert_eq!(score_part(&[token(0.0, &[1.0])]), None);
    }

    #[test]
    fn means_follow_the_last_samples() {
        let mut mean = RunningMean::default();
        assert_eq!(mean.get(), None);
        (0..10).for_each(|index| mean.add(f64::from(index)));
        assert!((mean.get().unwrap() - 4.5).abs() < 1e-9);
        (0..300).for_each(|_| mean.add(100.0));
        assert!(mean.get().unwrap() > 99.0);
    }
}
