//! A session: one conversation or text with its KV cache; prompt in, tokens and whole characters out.

mod budget;
mod dry_breakers;
mod generation;
mod messages;
mod open;
mod prompt;
mod rope_rescale;
mod save;
mod search;
mod start_tokens;
mod text_chunks;
mod turn;

pub(crate) use dry_breakers::with_breakers;
pub use generation::{FinishReason, Generation, GenerationStep};
pub(crate) use prompt::first_tokens;
pub(crate) use start_tokens::start_tokens;
pub use text_chunks::TextChunks;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siskin_kernels::ops::attention::CacheType;

use crate::encoder::Tokens;
use crate::model::Model;
use crate::sample::{Sampler, SamplerOptions};
use crate::{Error, ErrorKind, Result};
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{BatchEntry, Context, OutputRows, SequenceInput};
use siskin_chat_template::RenderOptions;
use siskin_graph::Window;
use turn::ConversationMessage;

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The maximum number of tokens; 0: the model's own, capped at 2048.
    pub context: usize,
    /// The maximum number of tokens per batch (chunked prefill).
    pub batch: usize,
    /// The maximum number of rows of encoder input, for encoder–decoder models; 0: the model's own, capped at 2048.
    pub text: usize,
    /// Which keys tokens attend to, if fewer than the model's own; layers with a shorter sliding window keep it. The KV
    /// cache then holds no more than this.
    pub window: Option<Window>,
    /// The type of the KV cache; `None`: f16, or f32 for models whose weights are f32.
    pub cache: Option<CacheType>,
    /// The maximum number of forks besides the session, such as the beams of a beam search, each with a context of its
    /// own.
    pub forks: usize,
    /// The maximum memory in bytes for activations and KV cache together. Opening a session that would reserve more
    /// fails with an error that names options that would fit. `None`: no limit.
    pub budget: Option<usize>,
    /// How tokens are sampled.
    pub sampler: SamplerOptions,
    /// Stop strings that end a generation.
    pub stop: Vec<String>,
    /// DRY sequence breakers as text, added to the sampler's own. Ignored without a tokenizer.
    pub dry_breakers: Vec<String>,
    /// Variables of the chat template. BOS, EOS and date that are `None` are those of the model and of today.
    pub template: RenderOptions,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: 0,
            batch: 256,
            text: 0,
            window: None,
            cache: None,
            forks: 0,
            budget: None,
            sampler: SamplerOptions::default(),
            stop: Vec::new(),
            dry_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            template: RenderOptions::default(),
        }
    }
}

/// A sampled token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneratedToken {
    /// Its id.
    pub id: u32,
    /// Its log-probability; NaN unless enabled in the sampler options.
    pub log_probability: f32,
}

/// Memory that a session holds, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMemory {
    /// Activations, scratch buffers, norms and biases.
    pub arena: usize,
    /// The KV cache, as reserved; pages become resident as it fills.
    pub cache: usize,
    /// The mapped model file.
    pub mapped: usize,
}

/// Options of a generation.
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// The maximum number of tokens.
    pub max_tokens: usize,
    /// Uses the prompt as it is, without the chat template.
    pub raw: bool,
    /// Parses control tokens in a raw prompt. Leave this off for untrusted text.
    pub parse_special: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { max_tokens: usize::MAX, raw: false, parse_special: false }
    }
}

/// Memory for the logits of a scored batch, in bytes.
const SCORE_BYTES: usize = 32 << 20;

/// One sequence of a model with its sampler. Forks share the KV cache of their common prefix.
pub struct Session {
    model: Model,
    options: SessionOptions,
    context: Arc<Mutex<Context>>,
    sequence: usize,
    /// The tokens of the sequence.
    tokens: Vec<u32>,
    sampler: Sampler,
    logits: Vec<f32>,
    turns: Vec<ConversationMessage>,
    /// The encoder input.
    source: Option<Tokens>,
    /// The last token of a raw text, which was returned but not processed by the model.
    pending_token: Option<u32>,
    /// The KV cache does not hold the tokens: recomputing them was cancelled.
    is_stale: bool,
    cancel: CancelHandle,
}

/// Locks the context once the model's governor admits a pass; a fork is not blocked while another session is throttled.
fn ready<'a>(context: &'a Mutex<Context>, model: &Model, cancel: &CancelHandle) -> MutexGuard<'a, Context> {
    model.governor().wait(cancel.flag());
    let mut context = locked(context);
    context.set_cancel_handle(cancel);
    context
}

/// Locks the context, also when the lock is poisoned: every batch validates what it needs.
fn locked(context: &Mutex<Context>) -> MutexGuard<'_, Context> {
    context.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Result<Self> {
        let sequences = options.forks.saturating_add(1);
        let context = model.context(&options, sequences, sequences)?;
        Self::in_context(model, options, context)
    }

    fn in_context(model: Model, options: SessionOptions, mut context: Context) -> Result<Self> {
        let sampler = match model.tokenizer() {
            // Padding rows of the LM head that correspond to no token are never sampled. Token ids beyond the LM head,
            // as in Gemma 3, cannot be sampled and are rejected as input.
            Ok(tokenizer) => {
                let choices = context.vocabulary().min(tokenizer.vocabulary_size().max(1) as usize);
                let sampler = with_breakers(&options.sampler, &options.dry_breakers, tokenizer)?;
                Sampler::new(&sampler, choices)?
            }
            Err(_) => Sampler::new(&options.sampler, context.vocabulary())?,
        };
        let sequence = context.create();
        let cancel = context.cancel_handle().clone();
        let logits = vec![0.0; context.vocabulary()];
        let tokens = Vec::with_capacity(context.context_length());
        let context = Arc::new(Mutex::new(context));
        Ok(Self {
            model,
            options,
            context,
            sequence,
            tokens,
            sampler,
            logits,
            turns: Vec::new(),
            source: None,
            pending_token: None,
            is_stale: false,
            cancel,
        })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the options of the session.
    pub(crate) fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Replaces the handle that cancels the session.
    pub(crate) fn set_cancel_handle(&mut self, cancel: CancelHandle) {
        self.cancel = cancel;
    }

    /// Returns the number of tokens so far.
    pub fn position(&self) -> usize {
        match self.is_stale {
            true => self.tokens.len(),
            false => locked(&self.context).length(self.sequence).unwrap_or(0),
        }
    }

    /// Returns the context length: the maximum number of tokens of the sequence.
    pub fn context_length(&self) -> usize {
        locked(&self.context).context_length()
    }

    /// Encodes a text, for encoder–decoder models, and resets the decoder's sequence.
    pub fn read(&mut self, text: &Tokens) -> Result<()> {
        self.reset();
        self.set_source(text)?;
        self.source = Some(text.clone());
        Ok(())
    }

    /// Sets `text` as the encoder input of the sequence.
    fn set_source(&mut self, text: &Tokens) -> Result<()> {
        let mut context = locked(&self.context);
        context.set_cancel_handle(&self.cancel);
        let Tokens { ids, segments, features, global, after } = text;
        let (sequence, outputs) = (self.sequence, OutputRows::None);
        context.encode(&[SequenceInput {
            sequence,
            tokens: ids,
            segments,
            features,
            outputs,
            global,
            after: *after,
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
    /// [`SessionOptions::batch`].
    pub fn prefill_prefix(&mut self, tokens: &[u32]) -> Result<()> {
        locked(&self.context).set_prefix(self.sequence, tokens.len())?;
        let read = self.prefill(tokens);
        if read.is_err() {
            // Cannot fail: the session stayed empty.
            let _ = locked(&self.context).set_prefix(self.sequence, 0);
        }
        read
    }

    /// Runs tokens through the model, `batch` at a time, and calls `each` with the session's logits and the index of
    /// the first token of every batch. On an error the session is as it was before, or, if a sliding window has
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
        context.reserve_positions(self.sequence, before + tokens.len())?;
        for (index, chunk) in tokens.chunks(batch).enumerate() {
            if index > 0 && self.model.governor().is_on() {
                drop(context);
                context = ready(&self.context, &self.model, &self.cancel);
            }
            if let Err(error) = context.forward(&[BatchEntry::new(self.sequence, chunk, outputs)]) {
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

    /// Returns the logits of the last token; zeros before the first.
    pub fn logits(&self) -> &[f32] {
        &self.logits
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
    fn reserve_logits(&mut self) -> Result<()> {
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

    /// Samples the next token and runs it through the model. `None` at the end of the generation.
    pub fn next_token(&mut self) -> Result<Option<GeneratedToken>> {
        let token = self.sample_token()?;
        if let Some(token) = token {
            self.prefill(&[token.id])?;
        }
        Ok(token)
    }

    /// Samples the next token.
    fn sample_token(&mut self) -> Result<Option<GeneratedToken>> {
        if self.tokens.is_empty() {
            return Err(Error::new(ErrorKind::State, "session", "has no tokens; prefill some first"));
        }
        let choice = self.sampler.sample(&self.logits[..self.sampler.vocabulary_size()])?;
        if self.model.end_ids().contains(&choice.id) {
            return Ok(None);
        }
        Ok(Some(GeneratedToken { id: choice.id, log_probability: choice.log_probability }))
    }

    /// Returns the most likely tokens of the last sampling step, if enabled in the sampler options.
    pub fn top(&self) -> &[crate::sample::SampledToken] {
        self.sampler.top()
    }

    /// Removes all but the first `length` tokens. The logits remain those of the last processed token until the next
    /// one is processed.
    pub fn truncate(&mut self, length: usize) -> Result<()> {
        match self.is_stale {
            true if length > self.tokens.len() => {
                let message = format!("cannot keep {length} of {} tokens", self.tokens.len());
                return Err(Error::argument("length", message));
            }
            true => {}
            false => {
                let mut context = locked(&self.context);
                // RoPE frequencies of a long sequence depend on its length when a token was processed.
                let is_rope_scaled =
                    context.passes().rope_scaling_length().is_some_and(|max| self.tokens.len() > max);
                context.truncate(self.sequence, length)?;
                drop(context);
                if is_rope_scaled && length < self.tokens.len() && self.source.is_none() {
                    self.mark_stale();
                }
            }
        }
        self.pending_token = None;
        if length < self.tokens.len() {
            self.tokens.truncate(length);
            self.sampler.set_history(&self.tokens);
        }
        Ok(())
    }

    /// Replaces the sequence by an empty one.
    fn empty(&mut self) {
        let mut context = locked(&self.context);
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

    /// Returns a second session that continues from here and shares the KV cache of the common prefix.
    ///
    /// All forks share the memory that the first session reserved; forking fails if it is exhausted.
    pub fn fork(&self) -> Result<Self> {
        let mut context = locked(&self.context);
        let sequence = context.fork(self.sequence)?;
        let mut tokens = Vec::with_capacity(context.context_length());
        drop(context);
        tokens.extend_from_slice(&self.tokens);
        Ok(Self {
            tokens,
            model: self.model.clone(),
            options: self.options.clone(),
            context: Arc::clone(&self.context),
            sequence,
            sampler: self.sampler.clone(),
            logits: self.logits.clone(),
            turns: self.turns.clone(),
            source: self.source.clone(),
            pending_token: self.pending_token,
            is_stale: self.is_stale,
            cancel: CancelHandle::new(),
        })
    }

    /// Returns a handle that cancels this session from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Returns the memory that the session holds.
    pub fn memory(&self) -> SessionMemory {
        let (arena, cache) = locked(&self.context).memory();
        SessionMemory { arena, cache, mapped: self.model.file().bytes().len() }
    }

    /// Returns unused memory, such as that of removed tokens, to the system.
    pub fn trim(&mut self) {
        locked(&self.context).trim();
    }

    /// Adds `prompt` as a user message and generates the answer with the default options.
    pub fn ask(&mut self, prompt: &str) -> Result<TextChunks<'_>> {
        self.generate(prompt, GenerateOptions::default())
    }

    /// Generates a text: the answer to `prompt` if the model has a chat template and `raw` is off, otherwise its
    /// continuation. An encoder–decoder model encodes the prompt in place of the previous one and generates a new text.
    pub fn generate(&mut self, prompt: &str, options: GenerateOptions) -> Result<TextChunks<'_>> {
        let generation = self.begin(prompt, options)?;
        Ok(TextChunks::new(self, generation))
    }

    /// Truncates the sequence to the common prefix with `tokens` and returns the tokens that must follow: at least one.
    fn truncate_to_common_prefix(&mut self, tokens: &[u32]) -> Result<Vec<u32>> {
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        // RoPE frequencies of a long sequence depend on its length when a token was processed.
        let longest = self.tokens.len().max(tokens.len());
        let is_rope_scaled =
            locked(&self.context).passes().rope_scaling_length().is_some_and(|length| longest > length);
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

impl Drop for Session {
    fn drop(&mut self) {
        locked(&self.context).remove(self.sequence);
    }
}
