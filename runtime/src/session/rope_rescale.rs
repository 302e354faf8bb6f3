//! Sequences that grow beyond the length up to which their frequencies hold.

use super::{Session, locked, ready};
use crate::context::BatchEntry;
use crate::{Error, ErrorKind, Result};

impl Session {
    /// Makes ready for `count` more tokens: computes the past again where they bring the sequence beyond the length up to
    /// which its frequencies hold, for what is cached was turned by others, and where that was stopped before. `batch`
    /// tokens go through the model at once. Gives whether the past was computed.
    ///
    /// # Errors
    /// [`ErrorKind::TooLong`] where the context has no room; nothing has changed then.
    pub(super) fn switch(&mut self, count: usize, batch: usize) -> Result<bool> {
        let context = locked(&self.context);
        let before = if self.lost { self.tokens.len() } else { context.length(self.sequence)? };
        let (end, most) = (before.saturating_add(count), context.most_tokens());
        if end > most {
            let message =
                format!("{end} tokens do not fit into the context of {most}; open a larger one or truncate");
            return Err(Error::new(ErrorKind::TooLong, "tokens", message));
        }
        let crosses = context.switches().is_some_and(|length| (1..=length).contains(&before) && end > length);
        drop(context);
        // What was read cannot be heard twice here.
        if !(crosses || self.lost) || self.source.is_some() || self.tokens.len() != before {
            return Ok(false);
        }
        self.lose();
        let mut context = ready(&self.context, &self.model, &self.stop);
        context.expect(self.sequence, end)?;
        let outcome = self
            .tokens
            .chunks(batch)
            .map(|tokens| BatchEntry { sequence: self.sequence, tokens, all_logits: false })
            .try_for_each(|piece| context.forward(std::slice::from_ref(&piece)));
        drop(context);
        match outcome {
            Ok(()) => self.lost = false,
            Err(_) => self.lose(),
        }
        outcome.map(|()| true)
    }

    /// Takes back what was cached: the tokens go through the model again before others do.
    pub(super) fn lose(&mut self) {
        self.empty();
        self.lost = true;
    }

    /// Computes what was lost.
    pub(super) fn recover(&mut self) -> Result<()> {
        if self.lost {
            let batch = locked(&self.context).limits().0;
            self.switch(0, batch)?;
        }
        Ok(())
    }
}
