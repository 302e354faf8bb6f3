//! How draft tokens are proposed.

use crate::model::Model;
use crate::{Error, Result};
use siskin_scheduler::speculation::{DraftBudget, DraftModel, DraftModelProposer, NgramProposer, Proposer};

/// How draft tokens are proposed, to compute several in one pass. Draft tokens change no token, and are only used while enough of
/// them are right to save time.
#[derive(Clone, Copy, Debug, Default)]
pub enum Speculation {
    /// None.
    Off,
    /// Prompt lookup; where it finds no match, the draft model, if there is one.
    #[default]
    Auto,
    /// Those that followed the last tokens when they occurred before (prompt lookup).
    Ngram,
    /// Those of the [draft model](super::ServedModelOptions::draft).
    Draft,
    /// Those of a proposer of the caller.
    Custom(fn() -> Box<dyn Proposer>),
}

impl Speculation {
    /// Returns the proposer for a request of up to `max_length` tokens.
    ///
    /// # Errors
    /// If the draft model that is asked for does not exist.
    pub(super) fn proposer(
        self,
        max_length: usize,
        draft: Option<&DraftModel>,
    ) -> Result<Option<Box<dyn Proposer>>> {
        let ngram = || NgramProposer::new(max_length);
        let proposer: Box<dyn Proposer> = match (self, draft) {
            (Self::Off, _) => return Ok(None),
            (Self::Auto, Some(draft)) => {
                Box::new(NgramOrDraft { ngram: ngram(), draft: draft.proposer(max_length) })
            }
            (Self::Auto, None) | (Self::Ngram, _) => Box::new(ngram()),
            (Self::Draft, Some(draft)) => Box::new(draft.proposer(max_length)),
            (Self::Draft, None) => {
                return Err(Error::argument("speculation", "the model was added without a draft model"));
            }
            (Self::Custom(create), _) => create(),
        };
        Ok(Some(proposer))
    }
}

/// Prompt lookup, which costs nothing, and a draft model where that finds nothing.
struct NgramOrDraft {
    ngram: NgramProposer,
    draft: DraftModelProposer,
}

impl Proposer for NgramOrDraft {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        let before = drafts.len();
        self.ngram.propose(tokens, budget, drafts);
        if drafts.len() == before {
            self.draft.propose(tokens, budget, drafts);
        }
    }
}

/// Returns an error unless the tokens of `draft` mean the same as those of `model`.
pub(super) fn check_draft(model: &Model, draft: &Model) -> Result<()> {
    if draft.graphs().encoder.is_some() || draft.graphs().decoder.is_none() {
        return Err(Error::unsupported("draft", "a draft model must be decoder-only"));
    }
    let have_same_tokens = match (model.file().tokenizer(), draft.file().tokenizer()) {
        (Some(own), Some(other)) => own[..] == other[..],
        (None, None) => model.config().vocabulary == draft.config().vocabulary,
        _ => false,
    };
    match have_same_tokens {
        true => Ok(()),
        false => Err(Error::argument("draft", "the draft model's tokenizer differs from the target model's")),
    }
}
