//! Recomputes the KV cache when a sequence outgrows the length for which its RoPE frequencies are valid.

use super::{Session, ready};
use crate::{Error, ErrorKind, Result};
use siskin_backend::context::OutputRows;

impl Session {
    /// Prepares for `count` more tokens. Recomputes the KV cache if they take the sequence past the length at which
    /// RoPE scaling changes its frequencies, since cached keys were rotated by the old ones, or if an earlier
    /// recomputation was canceled. `batch` tokens are processed per pass. Returns whether the cache was recomputed.
    ///
    /// # Errors
    /// [`ErrorKind::TooLong`] if the context is too short; the session is unchanged then.
    pub(super) fn rescale_rope(&mut self, count: usize, batch: usize) -> Result<bool> {
        let context = self.context.lock();
        let before = if self.is_stale { self.tokens.len() } else { context.length(self.sequence)? };
        let (end, context_length) = (before.saturating_add(count), context.block_table().context_length());
        if end > context_length {
            let message = format!(
                "{end} tokens exceed the context length of {context_length}; shorten the input, or use a larger context if the model has one"
            );
            return Err(Error::new(ErrorKind::TooLong, "tokens", message));
        }
        let crosses = context
            .passes()
            .longrope_length()
            .is_some_and(|length| (1..=length).contains(&before) && end > length);
        drop(context);
        // Sequences with encoder input are not recomputed.
        if !(crosses || self.is_stale) || self.source.is_some() || self.tokens.len() != before {
            return Ok(false);
        }
        self.mark_stale();
        self.make_room(end, Some(self.sequence));
        let mut context = ready(&self.context, &self.model, &self.cancel);
        context.set_expected_length(self.sequence, end)?;
        // A bidirectional prefix is processed in one batch.
        let batch = batch.max(context.block_table().bidirectional_prefix(self.sequence));
        let outcome = self
            .tokens
            .chunks(batch)
            .map(|tokens| self.entry(tokens, OutputRows::None))
            .try_for_each(|piece| context.forward(std::slice::from_ref(&piece)));
        drop(context);
        match outcome {
            Ok(()) => self.is_stale = false,
            Err(_) => self.mark_stale(),
        }
        outcome.map(|()| true)
    }

    /// Drops the cached keys and values; the tokens must be recomputed before others are processed.
    pub(super) fn mark_stale(&mut self) {
        let mut context = self.context.lock();
        let prefix = context.block_table().bidirectional_prefix(self.sequence);
        context.remove(self.sequence);
        self.sequence = context.create();
        // Cannot fail: the sequence is empty.
        let _ = context.set_bidirectional_prefix(self.sequence, prefix);
        drop(context);
        self.is_stale = true;
    }

    /// Recomputes the KV cache if it was dropped.
    pub(super) fn recover(&mut self) -> Result<()> {
        if self.is_stale {
            let batch = self.limits.batch;
            self.rescale_rope(0, batch)?;
        }
        Ok(())
    }
}
