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

use std::sync::{Arc, MutexGuard};

use siskin_kernels::ops::attention::CacheType;

use crate::constraint::StructuredOutput;
use crate::encoder::EncoderInput;
use crate::features::ENGINE;
use crate::model::Model;
use crate::sample::{Sampler, SamplerOptions};
use crate::{Error, ErrorKind, Result};
use conversation::ConversationMessage;
use siskin_backend::MemoryUse;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_backend::fair_mutex::FairMutex;
use siskin_chat_template::RenderOptions;
use siskin_graph::{AdapterSlot, StreamingWindow};
use siskin_scheduler::engine::SessionHandle;

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
    context: Arc<FairMutex<Context>>,
    limits: SessionLimits,
    /// What runs its passes, if the context is that of an engine.
    engine: Option<SessionHandle>,
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

/// What a context allows, known without locking it.
#[derive(Clone, Copy, Debug)]
struct SessionLimits {
    /// The maximum number of tokens in the sequence.
    context_length: usize,
    /// The maximum number of tokens per batch.
    batch: usize,
    /// The maximum number of rows with logits per batch.
    outputs: usize,
    /// The RoPE frequencies of longer sequences depend on their length.
    rope_scaling_length: Option<usize>,
}

impl SessionLimits {
    fn of(context: &Context) -> Self {
        let (batch, outputs) = context.decoder_limits();
        Self {
            context_length: context.block_table().context_length(),
            batch,
            outputs,
            rope_scaling_length: context.passes().rope_scaling_length(),
        }
    }
}

/// Locks the context once the model's governor admits a pass.
fn ready<'a>(
    context: &'a FairMutex<Context>,
    model: &Model,
    cancel: &CancelHandle,
) -> MutexGuard<'a, Context> {
    model.governor().wait(cancel.flag());
    let mut context = context.lock();
    context.set_cancel_handle(cancel);
    context
}

/// Returns a handle for a session that an engine runs, or a context of its own.
fn cancel_handle(engine: Option<&SessionHandle>) -> CancelHandle {
    linked(engine).map_or_else(CancelHandle::new, SessionHandle::cancel_handle)
}

/// Returns `None` in a library without engines, so that none of their code is linked.
fn linked(engine: Option<&SessionHandle>) -> Option<&SessionHandle> {
    engine.filter(|_| ENGINE.is_there)
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Result<Self> {
        let sequences = options.forks.saturating_add(1);
        let context = model.context(&options, sequences, sequences)?;
        Self::in_context(model, options, Arc::new(FairMutex::new(context)), None)
    }

    /// Creates a session in the context of an engine, which runs its passes.
    pub(crate) fn on_engine(model: Model, options: SessionOptions, engine: SessionHandle) -> Result<Self> {
        let context = Arc::clone(engine.context());
        Self::in_context(model, options, context, Some(engine))
    }

    fn in_context(
        model: Model,
        options: SessionOptions,
        context: Arc<FairMutex<Context>>,
        engine: Option<SessionHandle>,
    ) -> Result<Self> {
        let sampler = model.sampler(&options.sampler, &options.dry_breakers)?;
        let adapter = model.loaded().adapter_slot(options.adapter.as_deref())?;
        let mut locked = context.lock();
        let sequence = locked.create();
        let limits = SessionLimits::of(&locked);
        drop(locked);
        Ok(Self {
            cancel: cancel_handle(engine.as_ref()),
            tokens: Vec::with_capacity(limits.context_length),
            logits: vec![0.0; model.config().vocabulary],
            model,
            options,
            context,
            limits,
            engine,
            sequence,
            adapter,
            sampler,
            turns: Vec::new(),
            source: None,
            pending_token: None,
            is_stale: false,
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

    /// Returns the engine that runs the session's passes, if it is on one.
    fn engine(&self) -> Option<&SessionHandle> {
        linked(self.engine.as_ref())
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
        self.tokens.len()
    }

    /// Returns the context length: the maximum number of tokens in the sequence.
    pub fn context_length(&self) -> usize {
        self.limits.context_length
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
    /// All forks share the memory that the first session reserved; forking fails if it is exhausted. On an engine, forks
    /// count as sessions.
    pub fn fork(&self) -> Result<Self> {
        let engine = self.engine().map(SessionHandle::for_fork).transpose()?;
        let sequence = self.context.lock().fork(self.sequence)?;
        let mut tokens = Vec::with_capacity(self.limits.context_length);
        tokens.extend_from_slice(&self.tokens);
        Ok(Self {
            tokens,
            model: self.model.clone(),
            options: self.options.clone(),
            context: Arc::clone(&self.context),
            limits: self.limits,
            sequence,
            adapter: self.adapter,
            sampler: self.sampler.clone(),
            logits: self.logits.clone(),
            turns: self.turns.clone(),
            source: self.source.clone(),
            pending_token: self.pending_token,
            is_stale: self.is_stale,
            cancel: cancel_handle(engine.as_ref()),
            engine,
        })
    }

    /// Returns a handle that cancels this session from another thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Returns the memory that the session holds.
    pub fn memory(&self) -> SessionMemory {
        let MemoryUse { activations, kv_cache } = self.context.lock().memory();
        SessionMemory { arena: activations, cache: kv_cache, mapped: self.model.file().bytes().len() }
    }

    /// Returns unused memory, such as that of removed tokens, to the system.
    pub fn trim(&mut self) {
        self.context.lock().trim();
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
        match linked(self.engine.as_ref()) {
            Some(engine) => engine.remove(self.sequence),
            None => self.context.lock().remove(self.sequence),
        }
    }
}
