//! Sequences that grow beyond the length up to which their frequencies hold.

use super::{Session, locked};
use crate::context::Piece;
use crate::{Error, ErrorKind, Result};

impl Session {
    /// Computes the past again where `count` more tokens bring the sequence beyond the length up to which its frequencies
    /// hold: what is cached was turned by others; also where that was stopped before. `batch` tokens go through the model
    /// at once. Gives whether it was computed.
    pub(super) fn switch(&mut self, count: usize, batch: usize) -> Result<bool> {
        let mut context = locked(&self.context);
        let before = if self.lost { self.tokens.len() } else { context.length(self.sequence)? };
        let end = before.saturating_add(count);
        let crosses = context.switches().is_some_and(|length| (1..=length).contains(&before) && end > length);
        let fits = end <= context.most_tokens();
        if self.lost && !fits {
            let message = format!("{end} tokens do not fit into the context of {}", context.most_tokens());
            return Err(Error::new(ErrorKind::TooLong, "tokens", message));
        }
        // What is too long is refused as it is; what was read cannot be heard twice here.
        if !(crosses || self.lost) || !fits || self.source.is_some() || self.tokens.len() != before {
            return Ok(false);
        }
        context.listen_to(&self.stop.flag);
        context.remove(self.sequence);
        self.sequence = context.create();
        context.expect(self.sequence, end)?;
        let chunks = self.tokens.chunks(batch);
        let outcome = chunks
            .map(|tokens| Piece { sequence: self.sequence, tokens, every: false })
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
        let mut context = locked(&self.context);
        context.remove(self.sequence);
        self.sequence = context.create();
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
