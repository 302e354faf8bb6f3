//! What the prompts of a model look like: the file with which those of a server are compared.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use siskin::{Error, ErrorKind, Model, Result};

use super::characters;
use super::embedding::EmbeddingMoments;
use crate::files::read_text;

/// The maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// The version of the format.
const FORMAT: u32 = 1;
/// Bins of lengths in tokens: 0, 1, 2 to 3, 4 to 7 and so on.
const LENGTH_BINS: usize = 24;
/// Bins of other values, with equal shares of the baseline.
const QUANTILE_BINS: usize = 20;
/// Fewer prompts are no baseline.
const MIN_PROMPTS: usize = 100;
/// Added to the count of each token, so that unknown ones have a probability.
const PSEUDO_COUNT: f64 = 0.5;
/// The number of tokens of a prompt whose characters count.
const MAX_TEXT_TOKENS: usize = 4096;

/// A prompt of a baseline.
#[derive(Clone, Debug, Default)]
pub struct BaselinePrompt {
    /// The tokens, those of the chat template included.
    pub tokens: Vec<u32>,
    /// The mean log-probability of its tokens from the second on, if it was computed.
    pub log_probability: Option<f64>,
    /// The embedding, for encoders.
    pub embedding: Option<Vec<f32>>,
}

/// What the prompts of a model look like.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriftBaseline {
    format: u32,
    /// The identity of the model that computed the log-probabilities.
    model: String,
    vocabulary: u32,
    prompts: usize,
    /// How often tokens occur, by id.
    tokens: Vec<(u32, u64)>,
    prompt_length: Vec<f64>,
    /// Empty for models without a tokenizer.
    characters: Vec<f64>,
    token_frequency: Quantiles,
    log_probability: Option<Quantiles>,
    embedding: Option<EmbeddingMoments>,
}

/// A histogram whose bins have about equal shares.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quantiles {
    /// The upper bounds of all bins but the last, in increasing order.
    bounds: Vec<f64>,
    counts: Vec<f64>,
}

/// A property of prompts whose distribution is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    PromptLength,
    Characters,
    TokenFrequency,
    LogProbability,
}

impl Feature {
    pub(super) const ALL: [Self; 4] =
        [Self::PromptLength, Self::Characters, Self::TokenFrequency, Self::LogProbability];

    /// Returns its name in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PromptLength => "prompt_length",
            Self::Characters => "characters",
            Self::TokenFrequency => "token_frequency",
            Self::LogProbability => "log_probability",
        }
    }
}

impl Quantiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let bound = |index: usize| values.get(index * values.len() / QUANTILE_BINS).copied();
        let mut bounds: Vec<f64> = (1..QUANTILE_BINS).filter_map(bound).collect();
        bounds.dedup();
        let mut quantiles = Self { counts: vec![0.0; bounds.len() + 1], bounds };
        for value in values {
            let bin = quantiles.bin(value);
            quantiles.counts[bin] += 1.0;
        }
        quantiles
    }

    fn bin(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound <= value)
    }

    fn is_valid(&self) -> bool {
        self.counts.len() == self.bounds.len() + 1
            && self.bounds.is_sorted()
            && self.bounds.iter().all(|bound| bound.is_finite())
            && are_counts(&self.counts)
    }
}

fn are_counts(counts: &[f64]) -> bool {
    counts.len() <= 64 && counts.iter().all(|count| count.is_finite() && *count >= 0.0)
}

/// The logarithms of the frequencies of tokens.
#[derive(Clone, Debug)]
pub(super) struct TokenFrequencies {
    counts: HashMap<u32, u64>,
    total: f64,
    vocabulary: f64,
}

impl TokenFrequencies {
    fn new(counts: HashMap<u32, u64>, vocabulary: u32) -> Self {
        let total = counts.values().sum::<u64>() as f64;
        Self { counts, total, vocabulary: f64::from(vocabulary) }
    }

    /// Returns the mean logarithm of the frequencies of a prompt's tokens. `is_counted`: the prompt is one of those that were
    /// counted, and is compared with the others.
    fn mean(&self, tokens: &[u32], is_counted: bool) -> Option<f64> {
        let mut sorted = tokens.to_vec();
        sorted.sort_unstable();
        let total = self.total - if is_counted { tokens.len() as f64 } else { 0.0 };
        let all = total + PSEUDO_COUNT * self.vocabulary;
        let logarithm = |same: &[u32]| {
            let own = if is_counted { same.len() as u64 } else { 0 };
            let counted = same.first().and_then(|token| self.counts.get(token)).copied().unwrap_or_default();
            same.len() as f64 * ((counted.saturating_sub(own) as f64 + PSEUDO_COUNT) / all).ln()
        };
        let sum: f64 = sorted.chunk_by(|one, other| one == other).map(logarithm).sum();
        (!tokens.is_empty()).then(|| sum / tokens.len() as f64)
    }
}

impl DriftBaseline {
    /// Computes the baseline of prompts that are like those of the server.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for fewer than 100 prompts.
    pub fn of(model: &Model, prompts: &[BaselinePrompt]) -> Result<Self> {
        if prompts.len() < MIN_PROMPTS {
            let message = format!("expected at least {MIN_PROMPTS} prompts, got {}", prompts.len());
            return Err(Error::argument("data", message));
        }
        let vocabulary = u32::try_from(model.config().vocabulary).unwrap_or(u32::MAX);
        let mut characters: Vec<f64> = Vec::new();
        for shares in prompts.iter().filter_map(|prompt| character_shares(model, &prompt.tokens)) {
            characters.resize(characters::KINDS, 0.0);
            characters.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
        Ok(Self::of_tokens(prompts, vocabulary, identity(model), characters))
    }

    /// Computes the baseline, given the sums of the shares of characters.
    pub(super) fn of_tokens(
        prompts: &[BaselinePrompt],
        vocabulary: u32,
        model: String,
        characters: Vec<f64>,
    ) -> Self {
        let mut counts: HashMap<u32, u64> = HashMap::new();
        prompts
            .iter()
            .flat_map(|prompt| &prompt.tokens)
            .for_each(|token| *counts.entry(*token).or_default() += 1);
        let mut tokens: Vec<(u32, u64)> = counts.iter().map(|(token, count)| (*token, *count)).collect();
        tokens.sort_unstable();
        let frequencies = TokenFrequencies::new(counts, vocabulary);
        let mut prompt_length = vec![0.0; LENGTH_BINS];
        prompts.iter().for_each(|prompt| prompt_length[length_bin(prompt.tokens.len())] += 1.0);
        let means = prompts.iter().filter_map(|prompt| frequencies.mean(&prompt.tokens, true)).collect();
        let finite = |prompt: &BaselinePrompt| prompt.log_probability.filter(|value| value.is_finite());
        let scores: Vec<f64> = prompts.iter().filter_map(finite).collect();
        let embeddings: Vec<&[f32]> =
            prompts.iter().filter_map(|prompt| prompt.embedding.as_deref()).collect();
        Self {
            format: FORMAT,
            model,
            vocabulary,
            prompts: prompts.len(),
            tokens,
            prompt_length,
            characters,
            token_frequency: Quantiles::of(means),
            log_probability: (scores.len() >= MIN_PROMPTS).then(|| Quantiles::of(scores)),
            embedding: EmbeddingMoments::of(&embeddings),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read; [`ErrorKind::Corrupt`] if it is not a baseline.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let place = path.display().to_string();
        let text = read_text(path, MAX_FILE_BYTES)?;
        Self::parse(&text).map_err(|error| error.within(&place))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not a baseline, [`ErrorKind::Version`] for a later format.
    pub fn parse(text: &str) -> Result<Self> {
        let corrupt = |message: String| Error::new(ErrorKind::Corrupt, "drift baseline", message);
        let baseline: Self = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
        if baseline.format != FORMAT {
            let message = format!("format {} is not known; expected {FORMAT}", baseline.format);
            return Err(Error::new(ErrorKind::Version, "drift baseline", message));
        }
        let is_valid = baseline.prompt_length.len() == LENGTH_BINS
            && [0, characters::KINDS].contains(&baseline.characters.len())
            && are_counts(&baseline.prompt_length)
            && are_counts(&baseline.characters)
            && baseline.token_frequency.is_valid()
            && baseline.log_probability.as_ref().is_none_or(Quantiles::is_valid)
            && baseline.embedding.as_ref().is_none_or(EmbeddingMoments::is_valid)
            && baseline.tokens.iter().all(|(token, _)| *token < baseline.vocabulary)
            && baseline.tokens.iter().try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count)).is_some();
        if is_valid { Ok(baseline) } else { Err(corrupt("a histogram is not valid".to_owned())) }
    }

    /// Returns the text of a file.
    pub fn to_json(&self) -> String {
        // Numbers and texts are always written.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Checks that the tokens are those of a model.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the model has another vocabulary.
    pub(super) fn check(&self, model: &Model) -> Result<()> {
        let found = model.config().vocabulary;
        if usize::try_from(self.vocabulary) == Ok(found) {
            return Ok(());
        }
        let message = format!("is that of a model with {} tokens, not {found}", self.vocabulary);
        Err(Error::argument("drift_baseline", message))
    }

    pub(super) fn frequencies(&self) -> TokenFrequencies {
        TokenFrequencies::new(self.tokens.iter().copied().collect(), self.vocabulary)
    }

    /// Returns the histogram of a feature; `None` if there is none for the model.
    pub(super) fn histogram(&self, feature: Feature, model: &Model) -> Option<&[f64]> {
        // Other weights compute other log-probabilities.
        let is_known = feature != Feature::LogProbability || self.model == identity(model);
        Some(self.counts(feature)).filter(|counts| is_known && counts.iter().sum::<f64>() > 0.0)
    }

    /// Returns the histogram of a feature, which may be empty.
    pub(super) fn counts(&self, feature: Feature) -> &[f64] {
        match feature {
            Feature::PromptLength => &self.prompt_length,
            Feature::Characters => &self.characters,
            Feature::TokenFrequency => &self.token_frequency.counts,
            Feature::LogProbability => {
                self.log_probability.as_ref().map_or(&[], |quantiles| &quantiles.counts)
            }
        }
    }

    /// Returns the moments of embeddings; `None` if there are none for the model.
    pub(super) fn embedding(&self, model: &Model) -> Option<&EmbeddingMoments> {
        // Other weights compute other embeddings.
        self.embedding.as_ref().filter(|_| self.model == identity(model))
    }

    /// Returns the bin of the mean frequency of a prompt's tokens.
    pub(super) fn frequency_bin(&self, frequencies: &TokenFrequencies, tokens: &[u32]) -> Option<usize> {
        frequencies.mean(tokens, false).map(|mean| self.token_frequency.bin(mean))
    }

    /// Returns the bin of the mean log-probability of a prompt.
    pub(super) fn log_probability_bin(&self, value: f64) -> Option<usize> {
        self.log_probability.as_ref().map(|quantiles| quantiles.bin(value))
    }
}

fn identity(model: &Model) -> String {
    model.identity().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn length_bin(length: usize) -> usize {
    ((usize::BITS - length.leading_zeros()) as usize).min(LENGTH_BINS - 1)
}

/// Returns the shares of the kinds of characters in a prompt; `None` without a tokenizer.
pub(super) fn character_shares(model: &Model, tokens: &[u32]) -> Option<[f64; characters::KINDS]> {
    let tokenizer = model.tokenizer().ok()?;
    let mut bytes = Vec::new();
    for token in tokens.iter().take(MAX_TEXT_TOKENS) {
        bytes.extend_from_slice(&tokenizer.piece(*token, false).ok()?);
    }
    characters::shares(&String::from_utf8_lossy(&bytes))
}
