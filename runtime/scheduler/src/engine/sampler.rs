//! The interface to samplers: how tokens are chosen and delivered.

use crate::speculation::DraftBudget;
#[cfg(doc)]
use crate::speculation::Proposer;
use siskin_format::{Error, Result};

/// Chooses the tokens of a request and delivers them.
pub trait RequestSampler: Send {
    /// Called once, before the first pass of the request, with the number of its tokens that the prefix cache had.
    fn start(&mut self, cached_tokens: usize) {
        let _ = cached_tokens;
    }

    /// Takes the logits before `token`, which is at `index` in the prompt. Only called for requests that score their prompts
    /// ([`RequestSpec::scores_prompt`](crate::request::RequestSpec::scores_prompt)): for each token from the second on, in
    /// their order; again from there if the request was preempted.
    fn score(&mut self, index: usize, token: u32, logits: &[f32]) -> Result<()> {
        let _ = (index, token, logits);
        Ok(())
    }

    /// Chooses the next token from the logits of the last one.
    fn sample(&mut self, logits: &[f32]) -> Result<Sampled>;

    /// Returns the next token if it is certain without logits, such as by a grammar; the engine then calls this again.
    /// Only called after [`RequestSampler::sample`] returned a token.
    fn next_forced(&mut self) -> Result<Option<Sampled>> {
        Ok(None)
    }

    /// Appends draft tokens that may follow `tokens`; see [`Proposer`].
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        let _ = (tokens, budget, drafts);
    }

    /// Returns whether the reader keeps up; else the request is paused.
    fn has_room(&self) -> bool {
        true
    }

    /// Called once, when the request ends in any other way than by [`Sampled::End`].
    fn finish(&mut self, outcome: RequestOutcome);
}

/// The choice of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Continue with this token.
    Token(u32),
    /// The generation has ended.
    End,
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It has as many tokens as it may generate.
    Length,
    /// The context is full.
    ContextFull,
    /// It was canceled, or its reader left.
    Canceled,
    /// It was paused for too long, since its reader was too slow.
    ReaderTooSlow,
    /// Its deadline passed.
    DeadlineExceeded,
    /// It failed.
    Failed(Error),
}
