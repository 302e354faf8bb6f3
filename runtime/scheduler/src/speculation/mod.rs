//! Speculative decoding: tokens are guessed, and one pass computes the logits of all of them.
//!
//! Each row is sampled as without guesses, and the first token that differs from its guess ends the run (exact-match
//! verification of chains). A guess therefore costs time and changes nothing: tokens, log-probabilities and random
//! numbers are those of plain decoding, since the logits of a row do not depend on how many rows a pass has.

mod acceptance;
mod budget;
mod draft_model;
mod ngram;

pub(crate) use acceptance::Acceptance;
pub use budget::DraftBudget;
pub(crate) use budget::{MIN_GAIN, RETRY};
pub use draft_model::{DraftModel, DraftModelProposer};
pub use ngram::NgramProposer;

/// The maximum number of guessed tokens of a request per pass.
pub const MAX_DRAFTS: usize = 8;

/// Guesses the next tokens of a request.
pub trait Proposer: Send {
    /// Appends up to `budget.limit` tokens that may follow `tokens`, which is the prompt and all generated tokens. A
    /// proposer that takes time makes no more guesses than are [worthwhile](DraftBudget::worthwhile).
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>);
}
