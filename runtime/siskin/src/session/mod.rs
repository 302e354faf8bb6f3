//! A session: one conversation or text with its KV cache; prompt in, tokens and whole characters out.

mod budget;
mod conversation;
mod dry_breakers;
mod generation;
mod messages;
mod open;
mod prefill;
mod prefix_reuse;
mod prompt;
mod rope_rescale;
mod save;
mod saved_bytes;
mod saved_message;
mod score;
mod search;
mod start_tokens;
mod text_chunks;

pub(crate) use dry_breakers::with_breakers;
pub use generation::{FinishReason, Generation, GenerationStep};
#[cfg(feature = "tools")]
pub(crate) use prompt::{RenderedChat, no_template, render_chat};
pub(crate) use prompt::{conversation_tokens, first_tokens};
pub use score::TextScore;
pub(crate) use start_tokens::start_tokens;
pub use text_chunks::TextChunks;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siskin_kernels::ops::attention::CacheType;

use crate::constraint::StructuredOutput;
use crate::encoder::EncoderInput;
use crate::model::Model;
use crate::sample::{Sampler, SamplerOptions};
use crate::{Error, ErrorKind, Result};
use conversation::ConversationMessage;
use siskin_backend::MemoryUse;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_chat_template::RenderOptions;
use siskin_graph::{AdapterSlot, StreamingWindow};

/// Options for a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The maximum number of tokens; 0 means the model's own, capped at 2048.
    pub context: usize,
    /// The maximum number of tokens per batch (chunked prefill); 0 means the device's own, 256 on CPUs.
    pub batch: usize,
    /// The maximum number of rows of encoder input, for encoder–decoder models; 0 means the model's own, capped at
    /// 2048.
    pub encoder_context: usize,
    /// Which keys tokens attend to, if fewer than the model's own; layers with a shorter sliding window keep it. The KV
    /// cache then holds no more than this.
    pub window: Option<StreamingWindow>,
    /// The type of the KV cache; `None` means f16, or f32 for models whose weights are f32.
    pub cache: Option<CacheType>,
    /// The maximum number of forks besides the session, such as the beams of a beam search, each with a context of its
    /// own.
    pub forks: usize,
    /// The maximum memory in bytes for activations and KV cache together. Opening a session that would reserve more
    /// fails with an error that names options that would fit. `None` means no limit.
    pub budget: Option<usize>,
    /// The name of the adapter, of those that the model was opened with to choose from.
    pub adapter: Option<String>,
    /// How tokens are sampled.
    pub sampler: SamplerOptions,
    /// Stop strings that end a generation.
    pub stop: Vec<String>,
    /// DRY sequence breakers as text, added to the sampler's own. Ignored without a tokenizer.
    pub dry_breakers: Vec<String>,
    /// Chat template variables. BOS, EOS and date that are `None` are those of the model and of today.
    pub template: RenderOptions,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            context: 0,
            batch: 0,
            encoder_context: 0,
            window: None,
            cache: None,
            forks: 0,
            budget: None,
            adapter: None,
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

/// Options for a generation.
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// The maximum number of tokens.
    pub max_tokens: usize,
    /// Passes the prompt to the model verbatim, bypassing the chat template.
    pub raw: bool,
    /// Parses special tokens in a raw prompt. Leave this off for untrusted text.
    pub parse_special: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { max_tokens: usize::MAX, raw: false, parse_special: false }
    }
}

/// One sequence of a model with its sampler. Forks share the KV cache of their common prefix.
pub struct Session {
    model: Model,
    options: SessionOptions,
    context: Arc<Mutex<Context>>,
    sequence: usize,
    adapter: AdapterSlot,
    /// The tokens of the sequence.
    tokens: Vec<u32>,
    sampler: Sampler,
    logits: Vec<f32>,
    turns: Vec<ConversationMessage>,
    /// The encoder input.
    source: Option<EncoderInput>,
    /// The last token of a raw text, which was returned but not processed by the model.
    pending_token: Option<u32>,
    /// The KV cache does not hold the tokens: recomputing them was canceled.
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
        let sampler = model.sampler(&options.sampler, &options.dry_breakers)?;
        let adapter = model.loaded().adapter_slot(options.adapter.as_deref())?;
        let sequence = context.create();
        let cancel = context.cancel_handle().clone();
        let logits = vec![0.0; context.model().config.vocabulary];
        let tokens = Vec::with_capacity(context.block_table().context_length());
        let context = Arc::new(Mutex::new(context));
        Ok(Self {
            model,
            options,
            context,
            sequence,
            adapter,
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

    /// Returns tokens as a part of a batch.
    fn entry<'a>(&self, tokens: &'a [u32], outputs: OutputRows<'a>) -> BatchEntry<'a> {
        BatchEntry { adapter: self.adapter, ..BatchEntry::new(self.sequence, tokens, outputs) }
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

    /// Returns the context length: the maximum number of tokens in the sequence.
    pub fn context_length(&self) -> usize {
        locked(&self.context).block_table().context_length()
    }

    /// Returns the logits of the last token; zeros before the first.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// Samples the next token and runs it through the model. `None` at the end of the generation.
    pub fn next_token(&mut self) -> Result<Option<GeneratedToken>> {
        if self.sampler.is_complete()? {
            return Ok(None);
        }
        let token = self.sample_token()?;
        if let Some(token) = token {
            self.prefill(&[token.id])?;
        }
        Ok(token)
    }

    /// Samples the next token.
    fn sample_token(&mut self) -> Result<Option<GeneratedToken>> {
        if self.tokens.is_empty() {
            return Err(Error::new(ErrorKind::State, "session", "no tokens; prefill some first"));
        }
        let choice = self.sampler.sample(&self.logits[..self.sampler.vocabulary_size()])?;
        if self.model.end_ids().contains(&choice.id) {
            return Ok(None);
        }
        Ok(Some(GeneratedToken { id: choice.id, log_probability: choice.log_probability }))
    }

    /// Sets what the texts of the next generations must be; `None`: anything.
    ///
    /// # Errors
    /// As [`Model::constraint`].
    pub fn set_structured_output(&mut self, output: Option<&StructuredOutput>) -> Result<()> {
        let constraint = output.map(|output| self.model.constraint(output)).transpose()?;
        self.sampler.set_constraint(constraint);
        Ok(())
    }

    /// Returns the most likely tokens of the last sampling step, if enabled in the sampler options.
    pub fn top(&self) -> &[crate::sample::SampledToken] {
        self.sampler.top()
    }

    /// Returns a second session that continues from here and shares the KV cache of the common prefix.
    ///
    /// All forks share the memory that the first session reserved; forking fails if it is exhausted.
    pub fn fork(&self) -> Result<Self> {
        let mut context = locked(&self.context);
        let sequence = context.fork(self.sequence)?;
        let mut tokens = Vec::with_capacity(context.block_table().context_length());
        drop(context);
        tokens.extend_from_slice(&self.tokens);
        Ok(Self {
            tokens,
            model: self.model.clone(),
            options: self.options.clone(),
            context: Arc::clone(&self.context),
            sequence,
            adapter: self.adapter,
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
        let MemoryUse { activations, kv_cache } = locked(&self.context).memory();
        SessionMemory { arena: activations, cache: kv_cache, mapped: self.model.file().bytes().len() }
    }

    /// Returns unused memory, such as that of removed tokens, to the system.
    pub fn trim(&mut self) {
        locked(&self.context).trim();
    }

    /// Adds `prompt` as a user message and generates the response with the default options.
    pub fn ask(&mut self, prompt: &str) -> Result<TextChunks<'_>> {
        self.generate(prompt, GenerateOptions::default())
    }

    /// Generates a text: the response to `prompt` if the model has a chat template and `raw` is off, otherwise its
    /// continuation. An encoder–decoder model encodes the prompt in place of the previous one and generates a new text.
    pub fn generate(&mut self, prompt: &str, options: GenerateOptions) -> Result<TextChunks<'_>> {
        let generation = self.begin(prompt, options)?;
        Ok(TextChunks::new(self, generation))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        locked(&self.context).remove(self.sequence);
    }
}
