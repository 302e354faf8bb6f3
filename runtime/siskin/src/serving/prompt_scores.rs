//! The log-probabilities of a prompt's tokens.

use crate::beam_search::log_softmax;
use crate::model::Model;
use crate::sample::{SampledToken, most_likely};
use crate::serving::event::TokenScore;

/// Scores a prompt token by token.
pub(super) struct PromptScorer {
    /// How many of the most likely tokens are reported beside each.
    top: usize,
    tokens: Vec<TokenScore>,
    /// Reused from token to token.
    scores: Vec<f32>,
}

impl PromptScorer {
    pub(super) fn new(top: usize) -> Self {
        Self { top, tokens: Vec::new(), scores: Vec::new() }
    }

    /// Records the token at `index` of the prompt, unless that has happened: a request that was preempted computes its prompt
    /// again.
    pub(super) fn score(&mut self, model: &Model, index: usize, token: u32, logits: &[f32]) {
        if self.tokens.len() + 1 != index {
            return;
        }
        self.scores.clear();
        self.scores.extend_from_slice(logits);
        log_softmax(&model.kernel_table(), &mut self.scores);
        let log_probability = self.scores.get(token as usize).copied().unwrap_or(f32::NAN);
        let top = most_likely(&self.scores, self.top);
        self.tokens.push(TokenScore { token: SampledToken { id: token, log_probability }, top });
    }

    /// Returns the scores of all tokens from the second on.
    pub(super) fn finish(self) -> Vec<TokenScore> {
        self.tokens
    }
}
