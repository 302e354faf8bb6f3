//! Prefix reuse: a new prompt keeps the tokens of the KV cache that it begins with.

use super::Session;
use crate::{Error, Result};
use siskin_backend::block_table::within_bidirectional_prefix;

impl Session {
    /// Removes all but the first `length` tokens. The logits remain those of the last processed token until the next
    /// one is processed.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        if self.is_stale {
            self.check_stale_length(length)?;
        } else {
            let mut context = self.context.lock();
            // RoPE frequencies of a long sequence depend on its length when a token was processed.
            let is_rope_scaled = self.limits.rope_scaling_length.is_some_and(|max| self.tokens.len() > max);
            context.truncate(self.sequence, length)?;
            drop(context);
            if is_rope_scaled && length < self.tokens.len() && self.source.is_none() {
                self.mark_stale();
            }
        }
        self.pending_token = None;
        if length < self.tokens.len() {
            self.tokens.truncate(length);
            self.sampler.set_history(&self.tokens);
        }
        Ok(())
    }

    /// Checks that all but the first `length` tokens can be removed while the KV cache holds none.
    fn check_stale_length(&mut self, length: usize) -> Result<()> {
        if length > self.tokens.len() {
            let message = format!("cannot keep {length} of {} tokens", self.tokens.len());
            return Err(Error::argument("length", message));
        }
        let mut context = self.context.lock();
        let prefix = context.block_table().bidirectional_prefix(self.sequence);
        match length {
            0 => context.truncate(self.sequence, 0),
            _ if length < prefix => Err(within_bidirectional_prefix()),
            _ => Ok(()),
        }
    }

    /// Replaces the sequence by an empty one.
    pub(super) fn empty(&mut self) {
        let mut context = self.context.lock();
        context.remove(self.sequence);
        self.sequence = context.create();
    }

    /// Resets the session to its empty state.
    pub fn reset(&mut self) {
        self.empty();
        self.tokens.clear();
        self.pending_token = None;
        self.sampler.reset();
        self.turns.clear();
        self.source = None;
        self.is_stale = false;
        self.logits.fill(0.0);
    }

    /// Removes all but the first `length` tokens, and all messages, and runs the last remaining token through the model
    /// again, so that its logits are current.
    pub fn rewind(&mut self, length: usize) -> Result<()> {
        if length == 0 {
            self.reset();
            return Ok(());
        }
        let last = *self.tokens.get(length - 1).ok_or_else(|| {
            Error::argument("length", format!("cannot keep {length} of {} tokens", self.tokens.len()))
        })?;
        self.truncate(length - 1)?;
        self.turns.clear();
        self.prefill(&[last])
    }

    /// Truncates the sequence to the common prefix with `tokens` and returns the tokens that must follow: at least one.
    pub(super) fn truncate_to_common_prefix(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        // RoPE frequencies of a long sequence depend on its length when a token was processed.
        let longest = self.tokens.len().max(tokens.len());
        let is_rope_scaled = self.limits.rope_scaling_length.is_some_and(|length| longest > length);
        if !is_rope_scaled && self.truncate(common).is_ok() {
            return Ok(tokens[common..].to_vec());
        }
        // The KV cache no longer holds what the prefix needs: start over.
        self.empty();
        self.tokens.clear();
        self.is_stale = false;
        self.sampler.set_history(&[]);
        Ok(tokens.to_vec())
    }
}
