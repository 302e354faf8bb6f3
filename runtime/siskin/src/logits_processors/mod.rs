//! Logits processors: rules over the scores of the next token, the same for greedy decoding, sampling, beam search and
//! speech.
//!
//! A processor reads the text so far and changes scores. It has no state of its own, so that the hypotheses of a beam
//! search need no copies of it. The processors that a caller can enable are in `LOGITS_PROCESSORS`, in the order in which they are
//! applied; to add one, add a file with a `build` function and a line in that list.

mod bad_words;
mod forced;
pub(crate) mod from_config;
mod min_length;
mod no_repeat_ngram;
mod repetition_penalty;
mod suppress_tokens;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::{Error, Result};

/// Which tokens are forced, forbidden or made less likely. All processors are off by default.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsProcessorOptions {
    /// The end tokens, to which the processors about the length apply.
    pub eos_token_ids: Vec<u32>,
    /// The divisor of scores of tokens in the text, including the prompt, and their factor if they are negative; 1
    /// disables it.
    pub repetition_penalty: f32,
    /// The size of n-grams that may not repeat in the text, including the prompt; 0 disables it.
    pub no_repeat_ngram_size: usize,
    /// The size of n-grams of the encoder input that may not occur in the text; 0 disables it.
    pub encoder_no_repeat_ngram_size: usize,
    /// Token sequences that may not occur (bad words).
    pub bad_words: Vec<Vec<u32>>,
    /// The minimum length of the text in tokens, prompt included.
    pub min_length: usize,
    /// The minimum number of tokens after the prompt.
    pub min_tokens: usize,
    /// The forced first token after a prompt of one token.
    pub forced_bos_token_id: Option<u32>,
    /// The tokens of which one is forced as the last when only one more fits.
    pub forced_eos_token_ids: Vec<u32>,
    /// Tokens that are never generated.
    pub suppress: Vec<u32>,
    /// Tokens that are not generated first after the prompt and the tokens forced after it.
    pub suppress_first: Vec<u32>,
}

impl Default for LogitsProcessorOptions {
    fn default() -> Self {
        Self {
            eos_token_ids: Vec::new(),
            repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
            encoder_no_repeat_ngram_size: 0,
            bad_words: Vec::new(),
            min_length: 0,
            min_tokens: 0,
            forced_bos_token_id: None,
            forced_eos_token_ids: Vec::new(),
            suppress: Vec::new(),
            suppress_first: Vec::new(),
        }
    }
}

impl LogitsProcessorOptions {
    /// Checks that every rule is in its range.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the rule's name.
    pub fn validate(&self) -> Result<()> {
        let penalty = self.repetition_penalty;
        if !(f32::MIN_POSITIVE..=f32::MAX).contains(&penalty) {
            let message = format!("expected a positive number, got {penalty}");
            return Err(Error::argument("repetition_penalty", message));
        }
        match self.bad_words.iter().position(Vec::is_empty) {
            Some(index) => Err(Error::argument(format!("bad_words[{index}]"), "empty")),
            None => Ok(()),
        }
    }

    /// Checks that every token of the rules is one of `vocabulary` tokens: forbidding a token outside has no effect,
    /// and forcing it would leave no candidate.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument), whose place is the rule's name.
    pub(crate) fn validate_for(&self, vocabulary: usize) -> Result<()> {
        let first: Vec<u32> = self.forced_bos_token_id.into_iter().collect();
        let words: Vec<u32> = self.bad_words.concat();
        let named = [
            ("suppress", &self.suppress),
            ("suppress_first", &self.suppress_first),
            ("forced_bos_token_id", &first),
            ("forced_eos_token_ids", &self.forced_eos_token_ids),
            ("bad_words", &words),
        ];
        for (name, ids) in named {
            if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
                let message = format!("token id {id} is out of range; expected an id below {vocabulary}");
                return Err(Error::argument(name, message));
            }
        }
        Ok(())
    }
}

/// The context in which the next token is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessorContext<'a> {
    /// The encoder input; empty for decoder-only models.
    pub source: &'a [u32],
    /// Prompt and text.
    pub text: &'a [u32],
    /// The length of the prompt.
    pub prompt: usize,
    /// The maximum number of tokens that may follow, the next one included.
    pub left: usize,
}

/// Changes the scores of the next token: logits or log-probabilities. Negative infinity means forbidden.
pub(crate) trait LogitsProcessor: Send + Sync {
    /// Changes `scores`, one per token of the vocabulary.
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>);
}

type Build = fn(&LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>>;

const LOGITS_PROCESSORS: &[Build] = &[
    repetition_penalty::build,
    no_repeat_ngram::build,
    no_repeat_ngram::build_source,
    bad_words::build,
    min_length::build,
    forced::build,
    suppress_tokens::build,
];

/// The enabled processors, in order.
#[derive(Clone, Default)]
pub(crate) struct LogitsProcessorList {
    list: Vec<Arc<dyn LogitsProcessor>>,
}

impl LogitsProcessorList {
    /// Builds the processors that `rules` enable.
    pub(crate) fn new(rules: &LogitsProcessorOptions) -> Result<Self> {
        rules.validate()?;
        Ok(Self { list: LOGITS_PROCESSORS.iter().filter_map(|build| build(rules)).collect() })
    }

    /// Appends a processor.
    pub(crate) fn push(&mut self, rule: Arc<dyn LogitsProcessor>) {
        self.list.push(rule);
    }

    /// Returns whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Applies all processors.
    pub(crate) fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        self.list.iter().for_each(|rule| rule.apply(scores, place));
    }
}

/// Forbids tokens; ids outside the vocabulary are ignored.
fn forbid(scores: &mut [f32], ids: impl IntoIterator<Item = u32>) {
    for id in ids {
        if let Some(score) = scores.get_mut(id as usize) {
            *score = f32::NEG_INFINITY;
        }
    }
}
