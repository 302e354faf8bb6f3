//! How likely a text is.

use super::Session;
use crate::beam_search::log_softmax;
use crate::{Error, Result};
use siskin_tokenizer::EncodeOptions;

/// The probability of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TextScore {
    /// The sum of the log-probabilities of its tokens, each given all before it.
    pub log_probability: f64,
    /// The number of these tokens.
    pub tokens: usize,
}

impl Session {
    /// Appends a text and returns how likely it was: its log-likelihood given the tokens of the session. The first token of
    /// an empty session has no probability. To compare several texts, [fork](Session::fork) the session or rewind it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for encoder–decoder models, and those of
    /// [`Session::prefill`].
    pub fn score_text(&mut self, text: &str, parse_special: bool) -> Result<TextScore> {
        if self.model.graphs().encoder.is_some() {
            return Err(Error::unsupported("model", "texts of encoder–decoder models cannot be scored"));
        }
        let options = EncodeOptions { add_special: self.position() == 0, parse_special };
        let tokens = self.model.tokenizer()?.encode(text, options)?;
        if let Some(pending) = self.pending_token {
            self.prefill(&[pending])?;
            self.pending_token = None;
        }
        let kernels = self.model.kernel_table();
        let mut score = TextScore::default();
        let mut scores = Vec::new();
        let mut add = |logits: &[f32], token: u32| {
            scores.clear();
            scores.extend_from_slice(logits);
            log_softmax(&kernels, &mut scores);
            score.log_probability += f64::from(scores[token as usize]);
            score.tokens += 1;
        };
        if let Some(&first) = tokens.first().filter(|_| !self.tokens.is_empty()) {
            add(&self.logits, first);
        }
        self.score(&tokens, &mut |index, logits| {
            if let Some(&next) = tokens.get(index + 1) {
                add(logits, next);
            }
        })?;
        Ok(score)
    }
}
