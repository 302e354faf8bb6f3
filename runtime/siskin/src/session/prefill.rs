//! Prefill: appends tokens in chunks, and scores them.

use std::sync::Arc;

use super::{Session, SessionLimits, linked, ready};
use crate::encoder::EncoderInput;
use crate::{Error, ErrorKind, Result};
use siskin_backend::context::{Context, OutputRows, SequenceInput};
use siskin_backend::fair_mutex::FairMutex;
use siskin_scheduler::request::{RequestSpec, SequenceEnd};

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
        let mut context = self.context.lock();
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
        let SessionLimits { rope_scaling_length, .. } = self.limits;
        match self.engine() {
            // Frequencies that depend on the length are chosen, and dropped keys are recomputed, for the session alone.
            Some(_) if self.source.is_none() && rope_scaling_length.is_none() && !self.is_stale => {
                self.append_on_engine(tokens)
            }
            _ => self.prefill_alone(tokens),
        }
    }

    /// Appends tokens in passes of their own.
    fn prefill_alone(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(last) = tokens.len().checked_sub(1) else { return Ok(()) };
        let batch = self.limits.batch;
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
        if !self.tokens.is_empty() {
            let message = "the session has tokens already; reset it first";
            return Err(Error::new(ErrorKind::State, "prefix", message));
        }
        self.context.lock().set_bidirectional_prefix(self.sequence, tokens.len())?;
        let read = self.prefill_alone(tokens);
        if read.is_err() {
            // Cannot fail: the session stayed empty.
            let _ = self.context.lock().set_bidirectional_prefix(self.sequence, 0);
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
        self.make_room(tokens.len(), Some(self.sequence));
        let mut context = ready(&self.context, &self.model, &self.cancel);
        let before = context.length(self.sequence)?;
        context.set_expected_length(self.sequence, before + tokens.len())?;
        for (index, chunk) in tokens.chunks(batch).enumerate() {
            // Others have their turn between batches.
            if index > 0 && (self.engine.is_some() || self.model.governor().is_on()) {
                drop(context);
                context = ready(&self.context, &self.model, &self.cancel);
            }
            let is_last = (index + 1) * batch >= tokens.len();
            let outputs = match outputs {
                OutputRows::Last if !is_last => OutputRows::None,
                outputs => outputs,
            };
            if let Err(error) = context.forward(&[self.entry(chunk, outputs)]) {
                drop(context);
                match is_rescaled {
                    // The cached keys were rotated for a length that was not reached.
                    true => self.mark_stale(),
                    false => self.take_back(tokens, before)?,
                }
                return Err(error);
            }
            each(&mut self.logits, index * batch, &context);
        }
        drop(context);
        self.record_tokens(tokens);
        Ok(())
    }

    /// Appends tokens in passes of the engine, which requests of others share.
    fn append_on_engine(&mut self, tokens: &[u32]) -> Result<()> {
        let Some(engine) = linked(self.engine.as_ref()).filter(|_| !tokens.is_empty()) else { return Ok(()) };
        let before = self.tokens.len();
        let spec = RequestSpec {
            tokens: tokens.to_vec(),
            max_tokens: 1,
            adapter: self.adapter,
            append_to: Some(SequenceEnd { sequence: self.sequence, length: before }),
            ..RequestSpec::default()
        };
        if let Err(error) = engine.append(spec, &self.cancel, &mut self.logits) {
            match error.kind() {
                ErrorKind::State => self.mark_stale(),
                _ => self.take_back(tokens, before)?,
            }
            return Err(error);
        }
        self.record_tokens(tokens);
        Ok(())
    }

    /// Evicts cached prefixes of the engine for `tokens` more tokens, of `sequence` if there is one, for passes that it does
    /// not run.
    pub(super) fn make_room(&self, tokens: usize, sequence: Option<usize>) {
        if let Some(engine) = self.engine() {
            engine.make_room(tokens, sequence);
        }
    }

    /// Takes back the part of `tokens` that was processed before an error, except what cannot be taken back.
    fn take_back(&mut self, tokens: &[u32], before: usize) -> Result<()> {
        let mut context = self.context.lock();
        let is_cut = context.truncate(self.sequence, before).is_ok();
        let length = context.length(self.sequence)?;
        if !is_cut {
            // Returns what was reserved.
            let _ = context.truncate(self.sequence, length);
        }
        let kept = length.saturating_sub(before);
        drop(context);
        self.record_tokens(&tokens[..kept]);
        Ok(())
    }

    /// Appends tokens and calls `each` with the index and the logits of each, in order.
    pub fn score(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        self.reserve_logits()?;
        let batch = self.limits.batch.min(self.limits.outputs);
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
        let SessionLimits { batch, outputs: max, .. } = self.limits;
        let outputs = (SCORE_BYTES / (4 * self.logits.len())).clamp(1, batch.max(1));
        let alone = self.engine.is_none() && Arc::strong_count(&self.context) == 1 && self.position() == 0;
        if alone && max < outputs {
            let sequences = self.options.forks.saturating_add(1);
            let mut context = self.model.context(&self.options, sequences, outputs)?;
            self.sequence = context.create();
            self.limits = SessionLimits::of(&context);
            self.context = Arc::new(FairMutex::new(context));
            if let Some(text) = self.source.take() {
                self.set_source(&text)?;
                self.source = Some(text);
            }
        }
        Ok(())
    }
}
