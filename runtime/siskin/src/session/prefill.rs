//! Prefill: appends tokens in chunks, and scores them.

use std::sync::{Arc, Mutex};

use super::{Session, locked, ready};
use crate::Result;
use crate::encoder::EncoderInput;
use siskin_backend::context::{Context, OutputRows, SequenceInput};

/// Memory for the logits of a scored batch, in bytes.
const SCORE_BYTES: usize = 32 << 20;

impl Session {
    /// Encodes a text, for encoder–decoder models, and resets the decoder's sequence.
    pub fn encode(&mut self, text: &EncoderInput) -> Result<()> {
        self.reset();
        self.set_source(text)?;
        self.source = Some(text.clone());
        Ok(())
    }

    /// Sets `text` as the encoder input of the sequence.
    fn set_source(&mut self, text: &EncoderInput) -> Result<()> {
        let mut context = locked(&self.context);
        context.set_cancel_handle(&self.cancel);
        let EncoderInput { ids, token_type_ids, features, global_positions, padding_token, .. } = text;
        let (sequence, outputs) = (self.sequence, OutputRows::None);
        context.encode(&[SequenceInput {
            sequence,
            tokens: ids,
            token_type_ids,
            features,
            outputs,
            global_positions,
            padding_token: *padding_token,
            adapter: self.adapter,
        }])
    }

    /// Appends tokens; [`logits`](Self::logits) are those of the last one.
    pub fn prefill(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(last) = tokens.len().checked_sub(1) else { return Ok(()) };
        let batch = locked(&self.context).decoder_limits().0;
        self.forward(tokens, batch, OutputRows::Last, &mut |session, first, context| {
            if last - first < batch {
                session.copy_from_slice(context.output(0));
            }
        })
    }

    /// Appends tokens as the prefix of an empty session (prefix LM): they attend to each other in both directions, and
    /// later tokens attend to all of them. They are processed in one batch, so that their number is limited to
    /// [`SessionOptions::batch`](super::SessionOptions::batch).
    pub fn prefill_bidirectional(&mut self, tokens: &[u32]) -> Result<()> {
        locked(&self.context).set_bidirectional_prefix(self.sequence, tokens.len())?;
        let read = self.prefill(tokens);
        if read.is_err() {
            // Cannot fail: the session stayed empty.
            let _ = locked(&self.context).set_bidirectional_prefix(self.sequence, 0);
        }
        read
    }

    /// Runs tokens through the model, `batch` at a time, and calls `each` with the session's logits and the index of
    /// the first token of every batch. [`OutputRows::Last`] is the last token of all: batches before the last skip the
    /// LM head. On an error the session is as it was before, or, if a sliding window has
    /// advanced, holds the tokens that were processed.
    fn forward(
        &mut self,
        tokens: &[u32],
        batch: usize,
        outputs: OutputRows<'_>,
        each: &mut dyn FnMut(&mut [f32], usize, &Context),
    ) -> Result<()> {
        let is_rescaled = self.rescale_rope(tokens.len(), batch)?;
        let mut context = ready(&self.context, &self.model, &self.cancel);
        let before = context.length(self.sequence)?;
        context.set_expected_length(self.sequence, before + tokens.len())?;
        for (index, chunk) in tokens.chunks(batch).enumerate() {
            if index > 0 && self.model.governor().is_on() {
                drop(context);
                context = ready(&self.context, &self.model, &self.cancel);
            }
            let is_last = (index + 1) * batch >= tokens.len();
            let outputs = match outputs {
                OutputRows::Last if !is_last => OutputRows::None,
                outputs => outputs,
            };
            if let Err(error) = context.forward(&[self.entry(chunk, outputs)]) {
                if is_rescaled {
                    // The cached keys were rotated for a length that was not reached.
                    drop(context);
                    self.mark_stale();
                    return Err(error);
                }
                let _ = context.truncate(self.sequence, before);
                let kept = context.length(self.sequence)?.saturating_sub(before);
                drop(context);
                self.record_tokens(&tokens[..kept]);
                return Err(error);
            }
            each(&mut self.logits, index * batch, &context);
        }
        drop(context);
        self.record_tokens(tokens);
        Ok(())
    }

    /// Appends tokens and calls `each` with the index and the logits of each, in order.
    pub fn score(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.reserve_logits()?;
        let (batch, outputs) = locked(&self.context).decoder_limits();
        let batch = batch.min(outputs);
        self.forward(tokens, batch, OutputRows::All, &mut |logits, first, context| {
            for row in 0..batch.min(tokens.len() - first) {
                each(first + row, context.output(row));
                logits.copy_from_slice(context.output(row));
            }
        })
    }

    fn record_tokens(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        tokens.iter().for_each(|&token| self.sampler.accept(token));
    }

    /// Reserves memory for the logits of many rows, once. Only an empty session that shares no cache can be recreated.
    pub(super) fn reserve_logits(&mut self) -> Result<()> {
        let (batch, max) = locked(&self.context).decoder_limits();
        let outputs = (SCORE_BYTES / (4 * self.logits.len())).clamp(1, batch.max(1));
        let alone = Arc::strong_count(&self.context) == 1 && self.position() == 0;
        if alone && max < outputs {
            let sequences = self.options.forks.saturating_add(1);
            let mut context = self.model.context(&self.options, sequences, outputs)?;
            self.sequence = context.create();
            self.context = Arc::new(Mutex::new(context));
            if let Some(text) = self.source.take() {
                self.set_source(&text)?;
                self.source = Some(text);
            }
        }
        Ok(())
    }
}
