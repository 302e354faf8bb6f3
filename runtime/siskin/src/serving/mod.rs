//! Many requests at once: the engine of servers and of apps with several chats.
//!
//! Requests of all clients share forward passes (continuous batching) and the keys and values of common prefixes. The
//! tokens of a request are those that a session with the same options generates, to the bit.

mod embedding;
mod event;
mod event_queue;
mod prompt_scores;
mod request;
mod speculation;
mod stream;
mod stream_sampler;
mod wake;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub use embedding::{EmbeddingRequest, EncoderId};
pub use event::{GenerationEvent, StreamEnd, StreamTimes, StreamUsage, TokenScore};
pub use request::{GenerationRequest, PromptInput};
pub use siskin_scheduler::engine::{
    Drive, ModelId, PassTimes, RequestCanceler, RequestHandle, SchedulerStats, SchedulingOptions,
};
pub use siskin_scheduler::policy::Admission;
pub use siskin_scheduler::prefix_cache::{DiskCacheOptions, PrefixStoreStats};
pub use siskin_scheduler::request::{CacheSalt, ClientId, RequestClass};
pub use siskin_scheduler::speculation::{
    DraftBudget, DraftModel, DraftModelProposer, NgramProposer, Proposer,
};
pub use speculation::Speculation;
pub use stream::GenerationStream;

#[cfg(doc)]
use crate::ErrorKind;
use crate::encoder::{EmbedOptions, Encoder, EncoderInput, EncoderOptions};
use crate::features::ENGINE;
use crate::model::Model;
use crate::session::{Session, SessionOptions};
use crate::text::TextStream;
use crate::{Error, Result};
use embedding::{EncoderQueue, SharedBatches};
use event_queue::EventQueue;
use prompt_scores::PromptScorer;
use siskin_backend::block_table::KvBudget;
use siskin_backend::context::Resources;
use siskin_backend::thread_pool::SharedThreadPool;
use siskin_format::CargoFeature;
use siskin_graph::{AdapterSlot, OutputHead};
use siskin_scheduler::engine::{BatchQueue, MemoryBudget, TokenEngine};
use siskin_scheduler::prefix_cache::{DiskPrefixCache, PrefixStore, kv_layout};
use siskin_scheduler::request::{RequestSpec, check_length};
use siskin_scheduler::speculation::MAX_DRAFTS;
use stream_sampler::StreamSampler;

/// The cargo feature of engines.
pub const FEATURE: CargoFeature = ENGINE;

/// The cargo feature of prefixes on disk.
const DISK_CACHE: CargoFeature = CargoFeature { name: "disk-cache", is_there: cfg!(feature = "disk-cache") };

/// Options for an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineOptions {
    /// The number of compute threads, which all models share; 0: as many as the first model was opened with.
    pub threads: usize,
    /// Which threads run the passes.
    pub drive: Drive,
    /// The memory for the KV caches and activations of decoders, draft models included, in bytes; `None`: no limit. Adding a
    /// model that needs more than is left fails. Model files are mapped, encoders allocate a batch: neither counts.
    pub memory_budget: Option<usize>,
}

/// The memory of an engine's decoders, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineMemory {
    /// What KV caches and activations reserve. Pages become resident as the caches fill.
    pub reserved: usize,
    /// What is left of [`EngineOptions::memory_budget`]; `None`: no limit.
    pub free: Option<usize>,
}

/// Options for a model of an engine.
#[derive(Clone, Debug, Default)]
pub struct ServedModelOptions {
    /// The maximum length of a request in tokens, and the types and sizes that sessions have, too. `forks`, `budget`,
    /// `sampler`, `stop` and `template` are ignored: requests have their own.
    pub session: SessionOptions,
    /// The memory for the KV cache; `None`: enough for [`SchedulingOptions::max_running`] requests and
    /// [`SchedulingOptions::max_sessions`] sessions of the maximum length. Pages become resident as it fills.
    pub kv_budget: Option<KvBudget>,
    /// How many rows of a pass can have logits; at least one for each running request. More make scoring prompts faster
    /// ([`GenerationRequest::prompt_log_probabilities`]), and take memory for the logits.
    pub output_rows: usize,
    /// How requests are scheduled.
    pub scheduling: SchedulingOptions,
    /// Where cached prefixes are kept that leave memory, and those that are left when the engine is drained
    /// ([`Engine::drain`]); `None`: nowhere.
    pub disk_cache: Option<DiskCacheOptions>,
    /// A model with the same tokenizer that drafts tokens: a smaller one, or the same one opened with skipped layers
    /// ([`ModelOptions::skip`](crate::ModelOptions::skip)). Its KV cache takes memory like that of the model.
    pub draft: Option<Model>,
}

/// Generates for many requests at once. Clones share it.
///
/// ```no_run
/// use siskin::serving::{Engine, GenerationRequest};
///
/// let engine = Engine::new(Default::default())?;
/// let model = engine.add_model(&siskin::Model::open("smollm2.siskin")?, &Default::default())?;
/// let streams = ["Why is the sky blue?", "What is a siskin?"]
///     .map(|prompt| engine.submit(model, GenerationRequest::chat(prompt)));
/// for stream in streams {
///     println!("{}", stream?.text()?);
/// }
/// # Ok::<(), siskin::Error>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    engine: TokenEngine,
    options: EngineOptions,
    memory: Arc<MemoryBudget>,
    shared: Arc<Mutex<ServedModels>>,
}

#[derive(Default)]
struct ServedModels {
    pool: Option<SharedThreadPool>,
    models: Vec<ServedDecoder>,
    /// `None`: removed.
    encoders: Vec<Option<Arc<EncoderQueue>>>,
    /// The queues of [`Engine::encoder`], which live as long as such encoders.
    shared_queues: Vec<Weak<EncoderQueue>>,
}

#[derive(Clone)]
struct ServedDecoder {
    id: ModelId,
    model: Model,
    draft: Option<DraftModel>,
}

impl ServedModels {
    /// Returns a queue that computes with these options of a model.
    fn queue_of(&mut self, model: &Model, options: &EncoderOptions) -> Option<Arc<EncoderQueue>> {
        self.shared_queues.retain(|queue| queue.strong_count() > 0);
        let shared = self.shared_queues.iter().filter_map(Weak::upgrade);
        let mut all = self.encoders.iter().flatten().cloned().chain(shared);
        all.find(|queue| queue.is_for(model, options))
    }

    /// Returns the thread pool of all models, with `threads` threads or as many as `model` was opened with.
    fn pool(&mut self, threads: usize, model: &Model) -> Result<SharedThreadPool> {
        if let Some(pool) = &self.pool {
            return Ok(pool.clone());
        }
        let threads = if threads == 0 { model.threads() } else { threads };
        Ok(self.pool.insert(SharedThreadPool::new(threads)?).clone())
    }
}

impl Engine {
    /// Creates an engine without models.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the library was built without the feature `engine`.
    pub fn new(options: EngineOptions) -> Result<Self> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let memory = Arc::new(MemoryBudget::new(options.memory_budget.unwrap_or(usize::MAX)));
        Ok(Self { engine: TokenEngine::new(options.drive)?, options, memory, shared: Arc::default() })
    }

    /// Adds a model, and reserves the memory of its KV cache.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for models that are not decoder-only; [`ErrorKind::Memory`] if it needs more memory than
    /// is left of [`EngineOptions::memory_budget`], or of the device.
    pub fn add_model(&self, model: &Model, options: &ServedModelOptions) -> Result<ModelId> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        if model.graphs().encoder.is_some() || model.graphs().decoder.is_none() {
            return Err(Error::unsupported("model", "only decoder-only models run in an engine"));
        }
        // Not locked while memory is reserved: requests of other models are submitted meanwhile.
        let thread_pool = self.lock().pool(self.options.threads, model)?;
        let resources = Resources { thread_pool, kv_budget: options.kv_budget, pass_scheduler: None };
        let requests = options.scheduling.max_running.max(1);
        let sequences = requests.saturating_add(options.scheduling.max_sessions);
        // A single request can have as many draft tokens as it may.
        let output_rows = sequences.max(1 + MAX_DRAFTS).max(options.output_rows);
        // Half of a batch is for rows that decode.
        let batch = match options.session.batch {
            0 => model.batch_tokens().max(requests.saturating_mul(2)),
            batch => batch,
        };
        // Before anything is allocated; which context length would fit is part of the error.
        let budget = self.options.memory_budget.map(|_| self.memory.free());
        let session = SessionOptions { batch, budget, ..options.session.clone() };
        let mut context = model
            .context_on(&resources, &session, sequences, output_rows)
            .map_err(|error| self.explain_budget(error))?;
        let mut memory = context.memory().total();
        let mut draft = |draft: &Model| {
            speculation::check_draft(model, draft)?;
            // Beyond its own context it has no draft tokens.
            let context = options.session.context.min(draft.config().context);
            let session = SessionOptions { context, budget: None, ..options.session.clone() };
            // One more for a fork.
            let context = draft.context_on(&resources, &session, requests + 1, 1)?;
            memory = memory.saturating_add(context.memory().total());
            DraftModel::new(context)
        };
        let draft = options.draft.as_ref().map(&mut draft).transpose()?;
        let reservation = self.memory.reserve(memory)?;
        let store: Option<Arc<dyn PrefixStore>> = match &options.disk_cache {
            None => None,
            Some(_) if !DISK_CACHE.is_there => return Err(DISK_CACHE.missing()),
            Some(_) if !options.scheduling.prefix_cache => {
                return Err(Error::argument("disk_cache", "needs the prefix cache, which is off"));
            }
            Some(disk) => {
                let (identity, layout) = (model.kv_identity(AdapterSlot::MODEL), kv_layout(&mut context)?);
                Some(Arc::new(DiskPrefixCache::open(disk.clone(), identity, layout)?))
            }
        };
        let id = self.engine.add_model(context, options.scheduling, store, Some(reservation));
        self.lock().models.push(ServedDecoder { id, model: model.clone(), draft });
        Ok(id)
    }

    /// Removes a model: rejects further requests, waits until the others have ended, and cancels those that have not after
    /// `limit`. Its sessions cannot append tokens from then on. Cached prefixes are written to disk as by [`Engine::drain`]. Its memory
    /// is freed when the last of its streams and sessions is dropped.
    ///
    /// To replace a model without interruption, add the new one, send requests to it, then remove the old one; the memory
    /// budget must have room for both. Otherwise remove the old one first, and drop its streams and sessions, which hold its
    /// memory.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is not a model of this engine, or was removed before.
    pub fn remove_model(&self, model: ModelId, limit: Duration) -> Result<()> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        self.lock().models.retain(|known| known.id != model);
        self.engine.remove_model(model, limit)
    }

    /// Says in an error about the memory of a model where its budget comes from.
    fn explain_budget(&self, error: Error) -> Error {
        let Some(limit) = self.options.memory_budget.filter(|_| error.location() == "budget") else {
            return error;
        };
        let message = format!(
            "{}. The budget is what other models have left of {limit} bytes; a smaller KV cache or batch, or fewer requests \
             at a time, need less",
            error.message()
        );
        Error::new(error.kind(), "budget", message)
    }

    /// Returns the memory of its decoders.
    pub fn memory(&self) -> EngineMemory {
        let free = self.options.memory_budget.map(|_| self.memory.free());
        EngineMemory { reserved: self.memory.reserved(), free }
    }

    /// Removes the cached prefixes of all models, and releases unused memory to the operating system, as when it runs low.
    /// Some of the prefixes are written to disk. The memory stays reserved: requests use it again. Draft models keep theirs.
    /// Waits for the running pass.
    pub fn trim(&self) {
        if FEATURE.is_there {
            self.engine.trim();
        }
    }

    /// Adds an encoder, for [`Engine::embed`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for models without an encoder.
    pub fn add_encoder(&self, model: &Model, options: EncoderOptions) -> Result<EncoderId> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let queue = self.encoder_queue(model, options)?;
        let mut shared = self.lock();
        shared.encoders.push(Some(queue));
        Ok(EncoderId(shared.encoders.len() - 1))
    }

    /// Removes an encoder: rejects further texts, waits until the others are embedded, and cancels those that are not after
    /// `limit`. Those of [`Engine::encoder`] that share its batches get errors from then on, as after [`Engine::drain`].
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is not an encoder of this engine, or was removed before.
    pub fn remove_encoder(&self, encoder: EncoderId, limit: Duration) -> Result<()> {
        let removed = self.lock().encoders.get_mut(encoder.0).and_then(Option::take);
        let queue = removed.ok_or_else(unknown_encoder)?;
        queue.close();
        let start = Instant::now();
        self.engine.wait_until(&|| queue.is_empty() || start.elapsed() >= limit);
        queue.cancel_all();
        Ok(())
    }

    /// Creates a queue. It is not locked meanwhile: requests of other models are submitted.
    fn encoder_queue(&self, model: &Model, options: EncoderOptions) -> Result<Arc<EncoderQueue>> {
        let pool = self.lock().pool(self.options.threads, model)?;
        let queue = Arc::new(EncoderQueue::new(model, options, pool)?);
        self.engine.add_encoder(&(Arc::clone(&queue) as Arc<dyn BatchQueue>));
        Ok(queue)
    }

    /// Creates an encoder that runs on the engine. The texts that it embeds share batches with those of other encoders of the
    /// same model and options, and of [`Engine::embed`]; classification and other heads take turns with the engine's passes.
    ///
    /// [`Encoder::embed`] fails with [`ErrorKind::Overloaded`] if too many texts wait, and after [`Engine::drain`];
    /// [`Encoder::work`] does not count its texts.
    ///
    /// # Errors
    /// As [`Model::encoder`].
    pub fn encoder(&self, model: &Model, options: EncoderOptions) -> Result<Encoder> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let mut encoder = self.attach(model)?.encoder(options)?;
        if encoder.head() == OutputHead::Hidden {
            let known = self.lock().queue_of(model, &options);
            let queue = match known {
                Some(queue) => queue,
                None => {
                    let queue = self.encoder_queue(model, options)?;
                    self.lock().shared_queues.push(Arc::downgrade(&queue));
                    queue
                }
            };
            let batches = SharedBatches::new(self.engine.clone(), queue);
            let cancel = batches.cancel_handle();
            encoder.share_batches(Box::new(batches), cancel);
        }
        Ok(encoder)
    }

    /// Submits texts to embed, which share batches with those of other requests.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if too many texts wait;
    /// [`ErrorKind::TooLong`] if a text is too long for the model and `options` do not allow
    /// that.
    pub fn embed<T: AsRef<str>>(
        &self,
        encoder: EncoderId,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<EmbeddingRequest> {
        let encoder = self.known_encoder(encoder)?;
        let windows = encoder.windows(texts, options)?;
        encoder.submit(&self.engine, windows, options)
    }

    /// Submits tokenized texts to embed, special tokens included.
    ///
    /// # Errors
    /// As [`Engine::embed`].
    pub fn embed_tokens(
        &self,
        encoder: EncoderId,
        texts: Vec<EncoderInput>,
        options: &EmbedOptions,
    ) -> Result<EmbeddingRequest> {
        let encoder = self.known_encoder(encoder)?;
        let windows = encoder.windows_of_tokens(texts, options)?;
        encoder.submit(&self.engine, windows, options)
    }

    fn model(&self, id: ModelId) -> Result<ServedDecoder> {
        let model = self.lock().models.iter().find(|known| known.id == id).cloned();
        model.ok_or_else(unknown_model)
    }

    fn known_encoder(&self, id: EncoderId) -> Result<Arc<EncoderQueue>> {
        let encoder = self.lock().encoders.get(id.0).cloned().flatten();
        encoder.ok_or_else(unknown_encoder)
    }

    /// Submits a request. Its tokens are computed while any thread waits for events, or by the engine's own thread.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if too many requests wait;
    /// [`ErrorKind::TooLong`] if the prompt exceeds the context;
    /// [`ErrorKind::Argument`] if an option is out of range, or the grammar of a structured output is invalid.
    pub fn submit(&self, model: ModelId, request: GenerationRequest) -> Result<GenerationStream> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let ServedDecoder { model: served, draft, .. } = self.model(model)?;
        let submitted = Instant::now();
        let scores_prompt = request.prompt_log_probabilities;
        if scores_prompt && !request.sampler.log_probabilities {
            let message = "needs the log-probabilities of the sampler options";
            return Err(Error::argument("prompt_log_probabilities", message));
        }
        let only_scores = scores_prompt && request.max_tokens == 0;
        let max_tokens = request.max_tokens.max(usize::from(only_scores));
        let adapter = served.loaded().adapter_slot(request.adapter.as_deref())?;
        let tokens = request.prompt.tokens(&served)?;
        let mut sampler = served.sampler(&request.sampler, &request.dry_breakers)?;
        sampler.set_history(&tokens);
        let constraint = request.structured_output.as_ref().map(|output| served.constraint(output));
        sampler.set_constraint(constraint.transpose()?);
        sampler.begin(&[], max_tokens);
        let context_length = self.engine.context_length(model).unwrap_or_default();
        let max_length = tokens.len().saturating_add(max_tokens).min(context_length);
        let queue = Arc::new(EventQueue::new(tokens.len(), request.sampler.top_log_probabilities));
        let sampler = StreamSampler {
            model: served,
            sampler,
            stream: TextStream::new(&request.stop)?,
            visible_tokens: request.visible_tokens,
            proposer: request.speculation.proposer(max_length, draft.as_ref())?,
            prompt: scores_prompt.then(|| PromptScorer::new(request.sampler.top_log_probabilities)),
            only_scores,
            queue: Arc::clone(&queue),
            bytes: Vec::new(),
            usage: StreamUsage { prompt_tokens: tokens.len(), ..StreamUsage::default() },
            submitted,
            times: StreamTimes::default(),
            end_token: None,
            has_ended: false,
        };
        let spec = RequestSpec {
            tokens,
            max_tokens,
            class: request.class,
            client: request.client,
            salt: request.salt,
            adapter,
            timeout: request.timeout,
            append_to: None,
            scores_prompt,
        };
        let handle = self.engine.submit(model, spec, Box::new(sampler))?;
        Ok(GenerationStream::new(queue, handle, submitted))
    }

    /// Creates a session of a model: its tokens are batched with those of requests and of other sessions, and its keys and
    /// values occupy a part of the model's KV cache until it is dropped. Models whose RoPE frequencies depend on the length
    /// run the passes of a session alone, between others.
    ///
    /// Its context length, the types of its KV cache and its window are those that the model was added with; memory options
    /// and forks are ignored. Calls that do not append tokens wait for the running pass.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if an option is out of range; [`ErrorKind::Overloaded`] if the model has
    /// [`SchedulingOptions::max_sessions`].
    pub fn session(&self, model: ModelId, options: SessionOptions) -> Result<Session> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let ServedDecoder { model: served, .. } = self.model(model)?;
        Session::on_engine(served, options, self.engine.session_handle(model)?)
    }

    /// Returns a model whose contexts use the engine's threads: the passes of its sessions, encoders, sequence-to-sequence
    /// generators and transcribers wait for the engine, which shares the compute time equally between its models and each
    /// attached one. Otherwise they would compete for the cores.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if the threads cannot be created.
    pub fn attach(&self, model: &Model) -> Result<Model> {
        if !FEATURE.is_there {
            return Err(FEATURE.missing());
        }
        let thread_pool = self.lock().pool(self.options.threads, model)?;
        let pass_scheduler = Some(self.engine.add_pass_queue());
        Ok(model.with_resources(Resources { thread_pool, kv_budget: None, pass_scheduler }))
    }

    /// Returns the counters of a model's requests, as of its last pass.
    pub fn stats(&self, model: ModelId) -> Option<SchedulerStats> {
        if !FEATURE.is_there {
            return None;
        }
        self.engine.stats(model)
    }

    /// Returns how long a request that arrives now is predicted to wait for the prompts before it.
    pub fn predicted_wait(&self, model: ModelId) -> Option<Duration> {
        if !FEATURE.is_there {
            return None;
        }
        self.engine.predicted_wait(model)
    }

    /// Returns the counters of a model's prefixes on disk; `None` if it keeps none there.
    pub fn disk_cache_stats(&self, model: ModelId) -> Option<PrefixStoreStats> {
        if !FEATURE.is_there {
            return None;
        }
        self.engine.prefix_store_stats(model)
    }

    /// Returns the tokens of a prompt, to submit it more than once.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn tokenize(&self, model: ModelId, prompt: &PromptInput) -> Result<Vec<u32>> {
        let tokens = prompt.tokens(&self.model(model)?.model)?;
        let context_length = self.context_length(model).ok_or_else(unknown_model)?;
        check_length("prompt", tokens.len(), context_length)?;
        Ok(tokens)
    }

    /// Returns the maximum length of a model's requests in tokens, the prompt included.
    pub fn context_length(&self, model: ModelId) -> Option<usize> {
        self.engine.context_length(model)
    }

    /// Returns the maximum length of an encoder's texts in tokens.
    pub fn max_text_tokens(&self, encoder: EncoderId) -> Option<usize> {
        self.lock().encoders.get(encoder.0)?.as_ref().map(|encoder| encoder.max_tokens())
    }

    /// Rejects further requests, waits until the others have ended, and cancels those that have not after `limit`; from then
    /// on, sessions get errors, too. Cached prefixes are then written to disk, if models have
    /// [`ServedModelOptions::disk_cache`], for about ten seconds at most.
    pub fn drain(&self, limit: Duration) {
        if !FEATURE.is_there {
            return;
        }
        self.engine.drain(limit);
    }

    fn lock(&self) -> MutexGuard<'_, ServedModels> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown_model() -> Error {
    Error::argument("model", "not a model of this engine")
}

fn unknown_encoder() -> Error {
    Error::argument("encoder", "not an encoder of this engine")
}
