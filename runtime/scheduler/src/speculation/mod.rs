//! Speculative decoding: draft tokens are proposed, and one pass computes the logits of all of them.
//!
//! Each row is sampled as without speculation, and the first token that differs from its draft ends the run (exact-match
//! verification of chains). A draft token therefore costs time and changes nothing: tokens, log-probabilities and random
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

/// The maximum number of draft tokens of a request per pass.
pub const MAX_DRAFTS: usize = 8;

/// Drafts the next tokens of a request.
pub trait Proposer: Send {
    /// Appends up to `budget.limit` tokens that may follow `tokens`, which is the prompt and all generated tokens. A
    /// proposer that takes time makes no more draft tokens than are [worthwhile](DraftBudget::worthwhile).
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>);
}
