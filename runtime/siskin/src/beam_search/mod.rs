//! Beam search, and sampling of several texts at once.
//!
//! `beams.rs` holds the running and finished hypotheses of one prompt, independent of models; `run.rs` runs the last
//! tokens of all hypotheses of all prompts through the model in one batch. Each running hypothesis is a sequence of a
//! [`Context`], forked from the hypothesis that it extends, so that all share the KV cache of their common prefix.
//!
//! Ties are broken by the earlier hypothesis, then by the lower id. Results depend neither on the number of threads nor
//! on the other texts of the batch.
//!
//! [`Context`]: crate::Context

mod beams;
mod run;
mod sampling;
mod scores;
#[cfg(test)]
mod tests;

pub(crate) use beams::{BeamSettings, Beams};
pub(crate) use run::{BeamSearch, feed};
pub(crate) use sampling::{SampledTexts, SamplingSettings};
pub(crate) use scores::{apply_length_penalty, log_softmax};

use crate::logits_processors::LogitsProcessorOptions;
use crate::{Error, Result};

/// Early stopping: when a search ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeamEarlyStopping {
    /// When there are as many finished hypotheses as beams, and no running one has a better score at its current length
    /// (`early_stopping=False` of Transformers).
    #[default]
    Unlikely,
    /// When there are as many finished hypotheses as beams (`early_stopping=True`).
    Full,
    /// When there are as many finished hypotheses as beams, and no running one can get a better score at any length
    /// (`early_stopping="never"`).
    Never,
}

/// Options for a beam search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchOptions {
    /// The number of beams.
    pub beams: usize,
    /// The number of groups of diverse beam search (arXiv:1610.02424); 1 means plain beam search. It must divide
    /// `beams`.
    pub num_beam_groups: usize,
    /// The diversity penalty: subtracted from a token's score for every beam of an earlier group that chose it in the
    /// same step; 0 with one group.
    pub diversity_penalty: f32,
    /// The length penalty: the exponent of the length that a hypothesis's score is divided by. Positive values prefer
    /// long texts, negative values short ones.
    pub length_penalty: f32,
    /// When the search ends.
    pub early_stopping: BeamEarlyStopping,
    /// The number of texts to return, best first; at most `beams`.
    pub num_return_sequences: usize,
    /// The maximum number of tokens in a text, including the end token.
    pub max_tokens: usize,
    /// Logits processors. They change log-probabilities here, which are not renormalized afterwards.
    pub logits_processors: LogitsProcessorOptions,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            beams: 4,
            num_beam_groups: 1,
            diversity_penalty: 0.0,
            length_penalty: 1.0,
            early_stopping: BeamEarlyStopping::default(),
            num_return_sequences: 1,
            max_tokens: usize::MAX,
            logits_processors: LogitsProcessorOptions::default(),
        }
    }
}

/// The maximum number of beams per prompt.
pub(crate) const MAX_BEAMS: usize = 1024;

impl SearchOptions {
    /// Checks that every option is in its range.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the option's name.
    pub fn validate(&self) -> Result<()> {
        let Self { beams, num_beam_groups, num_return_sequences, .. } = *self;
        if !(1..=MAX_BEAMS).contains(&beams) {
            return Err(Error::argument("beams", format!("expected 1 to {MAX_BEAMS}, got {beams}")));
        }
        if num_beam_groups == 0 || !beams.is_multiple_of(num_beam_groups) {
            let message = format!("{beams} beams cannot be divided evenly into {num_beam_groups} groups");
            return Err(Error::argument("num_beam_groups", message));
        }
        if !(1..=beams).contains(&num_return_sequences) {
            return Err(Error::argument(
                "num_return_sequences",
                format!("expected 1 to {beams} (the number of beams), got {num_return_sequences}"),
            ));
        }
        for (name, value) in
            [("length_penalty", self.length_penalty), ("diversity_penalty", self.diversity_penalty)]
        {
            if !value.is_finite() {
                return Err(Error::argument(name, format!("expected a finite number, got {value}")));
            }
        }
        if self.diversity_penalty < 0.0 {
            let message = format!("expected a number of at least 0, got {}", self.diversity_penalty);
            return Err(Error::argument("diversity_penalty", message));
        }
        if self.diversity_penalty > 0.0 && num_beam_groups == 1 {
            let message = "no effect with a single beam group; request at least 2 groups";
            return Err(Error::argument("diversity_penalty", message));
        }
        let (min_tokens, max_tokens) = (self.logits_processors.min_tokens, self.max_tokens);
        if max_tokens == 0 {
            return Err(Error::argument("max_tokens", "expected at least 1, got 0"));
        }
        if min_tokens > max_tokens {
            let message = format!(
                "{min_tokens} exceeds the maximum of {max_tokens} tokens; request fewer, or allow more"
            );
            return Err(Error::argument("min_tokens", message));
        }
        self.logits_processors.validate()
    }
}

/// A finished hypothesis.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedHypothesis {
    /// Its tokens, without the prompt; the last is the end token if the model ended the text.
    pub tokens: Vec<u32>,
    /// The sum of the log-probabilities of its tokens, divided by a power of its length.
    pub score: f64,
}
