//! A constraint as a step of the sampler chain.

use super::{TokenConstraint, TokenMask};
use crate::Result;

/// Tokens that a greedy choice tries before it computes the whole mask.
const GREEDY_TRIES: usize = 4;

/// A constraint with the tokens that it forces.
#[derive(Clone)]
pub(crate) struct ConstraintState {
    /// As it was before the first token.
    initial: Box<dyn TokenConstraint>,
    current: Box<dyn TokenConstraint>,
    mask: TokenMask,
    /// Forced tokens that were not accepted yet, the next one last.
    forced: Vec<u32>,
    /// Whether `forced` was computed for the current text.
    knows_forced: bool,
}

impl ConstraintState {
    pub(crate) fn new(constraint: Box<dyn TokenConstraint>, vocabulary_size: usize) -> Self {
        Self {
            current: constraint.fork(),
            initial: constraint,
            mask: TokenMask::new(vocabulary_size),
            forced: Vec::new(),
            knows_forced: false,
        }
    }

    /// Returns to the state before the first token.
    pub(crate) fn reset(&mut self) {
        self.current = self.initial.fork();
        self.forced.clear();
        self.knows_forced = false;
    }

    /// Returns the token that comes next whatever its logit is, if there is one.
    pub(crate) fn forced(&mut self) -> Result<Option<u32>> {
        if self.forced.is_empty() && !self.knows_forced && !self.current.is_complete()? {
            self.current.forced(&mut self.forced)?;
            self.forced.reverse();
        }
        self.knows_forced = true;
        Ok(self.forced.last().copied())
    }

    /// Masks the scores of all tokens that are not allowed.
    pub(crate) fn apply(&mut self, scores: &mut [f32]) -> Result<()> {
        self.mask.clear();
        self.current.mask(&mut self.mask)?;
        self.mask.apply(scores);
        Ok(())
    }

    /// Returns the allowed token with the highest score, the first one of equals; `None` if all are masked. Changes
    /// `scores`.
    pub(crate) fn greedy(&mut self, scores: &mut [f32]) -> Result<Option<u32>> {
        for _ in 0..GREEDY_TRIES {
            let Some(best) = highest(scores) else { return Ok(None) };
            if self.current.allows(best)? {
                return Ok(Some(best));
            }
            scores[best as usize] = f32::NEG_INFINITY;
        }
        self.apply(scores)?;
        Ok(highest(scores))
    }

    /// Appends a token to the text.
    pub(crate) fn accept(&mut self, token: u32) -> Result<()> {
        self.current.accept(token)?;
        if self.forced.pop() != Some(token) {
            self.forced.clear();
        }
        self.knows_forced = !self.forced.is_empty();
        Ok(())
    }

    /// Returns whether nothing but the end may follow.
    pub(crate) fn is_complete(&mut self) -> Result<bool> {
        self.current.is_complete()
    }
}

/// Returns the token with the highest score, the first one of equals; `None` if all are masked.
fn highest(scores: &[f32]) -> Option<u32> {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let found = scores.iter().position(|score| *score == highest);
    found.filter(|_| highest > f32::NEG_INFINITY).map(|id| id as u32)
}
