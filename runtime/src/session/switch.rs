//! Sequences that grow beyond the length up to which their frequencies hold.

use super::{Session, locked};
use crate::Result;
use crate::context::Piece;

impl Session {
    /// Computes the past again where `count` more tokens bring the sequence beyond the length up to which its frequencies
    /// hold: what is cached was turned by others. `batch` tokens go through the model at once.
    pub(super) fn switch(&mut self, count: usize, batch: usize) -> Result<()> {
        let mut context = locked(&self.context);
        let before = context.length(self.sequence)?;
        let end = before.saturating_add(count);
        let crosses = context.switches().is_some_and(|length| (1..=length).contains(&before) && end > length);
        // What is too long is refused as it is; what was read cannot be heard twice here.
        if !crosses || end > context.most_tokens() || self.source.is_some() || self.tokens.len() != before {
            return Ok(());
        }
        context.listen_to(&self.stop.flag);
        context.remove(self.sequence);
        self.sequence = context.create();
        context.expect(self.sequence, end)?;
        let chunks = self.tokens.chunks(batch);
        let outcome = chunks
            .map(|tokens| Piece { sequence: self.sequence, tokens, every: false })
            .try_for_each(|piece| context.forward(std::slice::from_ref(&piece)));
        if outcome.is_err() {
            let kept = context.length(self.sequence)?;
            drop(context);
            self.tokens.truncate(kept);
            self.sampler.recall(&self.tokens);
        }
        outcome
    }
}
