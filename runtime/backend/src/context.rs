//! Sequences that run in batches: validation, the block table and the executable of a backend.

mod batch_builder;
mod early_exit;
mod forward_passes;
mod input;
mod pass_scheduler;

pub use early_exit::encode_with_early_exit;
pub use input::{BatchEntry, OutputRows, SequenceInput, check_adapter};
pub use pass_scheduler::PassScheduler;
pub use siskin_graph::AdapterSlot;

use std::sync::{Arc, Mutex};

use crate::block_table::{BlockTable, CacheOptions, CacheTypes, KvBudget, SavedSequence, SequenceState};
use crate::cancel::CancelHandle;
use crate::loaded_model::LoadedModel;
use crate::observer::Observer;
use crate::thread_pool::SharedThreadPool;
use crate::{Batch, Executable, ForwardInput, ForwardPass, MemoryUse, ModelPart};
use batch_builder::BatchBuilder;
use forward_passes::ForwardPasses;
use pass_scheduler::ScheduledPass;
use siskin_format::kv::KvFileWriter;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::StreamingWindow;
use siskin_kernels::ops::attention::CacheType;

/// What contexts use but do not own: contexts with the same resources, of one or of several models, take turns on the
/// same threads.
#[derive(Clone)]
pub struct Resources {
    /// The threads, which are lent to one pass at a time.
    pub thread_pool: SharedThreadPool,
    /// The memory for the blocks of one context's KV cache; `None`: as much as its sequences can need.
    pub kv_budget: Option<KvBudget>,
    /// Decides when a pass may begin; `None`: as soon as the threads are free.
    pub pass_scheduler: Option<Arc<dyn PassScheduler>>,
}

/// Options for creating a context.
#[derive(Clone, Copy, Debug)]
pub struct ContextOptions {
    /// The size of the KV cache.
    pub cache: CacheOptions,
    /// Limits how many tokens a query attends to.
    pub window: Option<StreamingWindow>,
    /// The maximum number of output rows per decoder batch.
    pub max_output_rows: usize,
    /// The maximum number of output rows per encoder batch.
    pub max_encoder_output_rows: usize,
    /// Whether the encoder's outputs are those of the head, or else the hidden states.
    pub with_head: bool,
    /// Whether early exit is enabled.
    pub early_exit: bool,
}

/// How much of a decoder's sequences a context must hold. 0 selects a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecoderLimits {
    /// The maximum length of a sequence in tokens; 0: the model's context length, capped at 2048.
    pub context: usize,
    /// The maximum number of tokens per batch; 0: the device's default.
    pub batch: usize,
    /// The maximum length of an encoded text; 0: the model's context length, capped at 2048.
    pub encoder_context: usize,
    /// The element type of the KV cache; `None`: that of the model.
    pub cache: Option<CacheType>,
    /// Limits how many tokens a query attends to.
    pub window: Option<StreamingWindow>,
}

impl ContextOptions {
    /// Options for a decoder, of which `output_rows` rows give outputs per batch.
    pub fn decoder(cache: CacheOptions, output_rows: usize) -> Self {
        Self {
            cache,
            window: None,
            max_output_rows: output_rows,
            max_encoder_output_rows: 0,
            with_head: true,
            early_exit: false,
        }
    }

    /// Options for an encoder of up to `rows` tokens per batch, of which `outputs` give outputs.
    pub fn encoder(types: CacheTypes, rows: usize, outputs: usize) -> Self {
        let cache = CacheOptions {
            types,
            context_length: 0,
            max_sequences: rows,
            max_batch_tokens: 0,
            encoder_context: rows,
        };
        Self {
            cache,
            window: None,
            max_output_rows: 0,
            max_encoder_output_rows: outputs,
            with_head: true,
            early_exit: false,
        }
    }
}

impl LoadedModel {
    /// Returns the options of a context for `sequences` sequences, of which `output_rows` rows give outputs.
    ///
    /// # Errors
    /// If the model does not support the limits.
    pub fn context_options(
        &self,
        limits: &DecoderLimits,
        sequences: usize,
        output_rows: usize,
    ) -> Result<ContextOptions> {
        self.check_cache(limits.cache, limits.window)?;
        let max = self.config.context.max(1);
        if limits.context > max {
            let message = format!("{} tokens; the model supports at most {max}", limits.context);
            return Err(Error::new(ErrorKind::TooLong, "context", message));
        }
        let context_length = if limits.context == 0 { max.min(2048) } else { limits.context };
        let encoder_context = match self.graphs.encoder {
            None => 0,
            Some(_) if limits.encoder_context == 0 => self.config.encoder_context.min(2048),
            Some(_) => limits.encoder_context.min(self.config.encoder_context),
        };
        if limits.window.is_some_and(|window| window.window == 0) {
            return Err(Error::argument("window", "must be at least 1"));
        }
        let batch = if limits.batch == 0 { self.module.batch_tokens() } else { limits.batch };
        let (types, max_sequences) = (self.cache_types(limits.cache), sequences.max(1));
        let cache = CacheOptions {
            types,
            context_length,
            max_sequences,
            max_batch_tokens: batch.clamp(1, context_length.saturating_mul(max_sequences)),
            encoder_context,
        };
        Ok(ContextOptions { window: limits.window, ..ContextOptions::decoder(cache, output_rows.max(1)) })
    }
}

/// Several sequences that share weights, KV cache and threads, and run in one batch.
///
/// `siskin::Session` is the convenient API for one sequence; a server runs many sequences in one context.
pub struct Context {
    model: Arc<LoadedModel>,
    passes: ForwardPasses,
    executable: Box<dyn Executable>,
    table: BlockTable,
    pool: SharedThreadPool,
    pass_scheduler: Option<Arc<dyn PassScheduler>>,
    batch: Batch,
    /// The sequences of the last batch that were canceled.
    canceled: Vec<usize>,
    cancel: CancelHandle,
}

impl Context {
    /// Allocates a context, with a thread pool of its own unless it gets resources.
    pub fn new(
        model: Arc<LoadedModel>,
        options: &ContextOptions,
        resources: Option<&Resources>,
    ) -> Result<Self> {
        let passes = ForwardPasses::new(&model, options)?;
        let kv_budget = resources.and_then(|resources| resources.kv_budget);
        let limits = model.execution_limits(&passes, &options.cache, kv_budget)?;
        let pool = match resources {
            Some(resources) => resources.thread_pool.clone(),
            None => SharedThreadPool::new(model.module.threads())?,
        };
        let max = |size: &dyn Fn(&ForwardPass) -> usize| passes.whole().map(size).max().unwrap_or(0);
        let batch = Batch::with_capacity(max(&|pass| pass.max_rows), max(&|pass| pass.max_output_rows));
        Ok(Self {
            executable: model.module.create_executable(&limits)?,
            table: BlockTable::new(limits.block_layout),
            pool,
            pass_scheduler: resources.and_then(|resources| resources.pass_scheduler.clone()),
            canceled: Vec::with_capacity(options.cache.max_sequences.min(options.cache.max_batch_tokens)),
            batch,
            cancel: CancelHandle::new(),
            passes,
            model,
        })
    }

    /// Returns the maximum number of rows in a decoder batch, and the maximum number of them that can have logits;
    /// zeros if the model has no decoder.
    pub fn decoder_limits(&self) -> (usize, usize) {
        self.passes.max_rows(ModelPart::Decoder)
    }

    /// Passes the inputs of all matmuls to `observer` from now on.
    ///
    /// # Errors
    /// If the backend is not that of the CPU.
    pub fn observe(&mut self, observer: Arc<Mutex<dyn Observer>>) -> Result<()> {
        self.executable.observe(observer)
    }

    /// Creates an empty sequence.
    pub fn create(&mut self) -> usize {
        self.table.create()
    }

    /// Forks `sequence`: the new sequence shares its KV cache blocks until either is extended (copy on write).
    pub fn fork(&mut self, sequence: usize) -> Result<usize> {
        self.fork_at(sequence, self.table.length(sequence)?)
    }

    /// Forks the first `length` tokens of `sequence`, which the new sequence shares.
    pub fn fork_at(&mut self, sequence: usize, length: usize) -> Result<usize> {
        let fork = self.table.fork_at(sequence, length)?;
        self.executable.fork(sequence, fork);
        Ok(fork)
    }

    /// Removes a sequence.
    pub fn remove(&mut self, sequence: usize) {
        self.table.remove(sequence);
    }

    /// Returns the number of tokens in a sequence.
    pub fn length(&self, sequence: usize) -> Result<usize> {
        self.table.length(sequence)
    }

    /// Drops all but the first `length` tokens of a sequence.
    pub fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.table.truncate(sequence, length)
    }

    /// Takes back all but the first `length` tokens, of which the last batch added the rest. Reserved memory stays.
    pub fn roll_back(&mut self, sequence: usize, length: usize) {
        self.table.roll_back(sequence, length);
    }

    /// Reserves memory for `count` more tokens of a sequence, which no other sequence can take; a fork shares the last
    /// block, which takes another one when it is written.
    pub fn reserve(&mut self, sequence: usize, count: usize) -> Result<()> {
        let before = self.table.reserved(sequence);
        let reserved = self.table.reserve(sequence, count);
        let copied = self.copy_blocks();
        if copied.is_err() {
            self.table.unreserve(sequence, before);
        }
        copied.and(reserved)
    }

    /// Appends the blocks of a sequence to `out`; returns the rest of its state.
    pub fn save(&self, sequence: usize, out: &mut KvFileWriter) -> Result<SequenceState> {
        if !self.model.capabilities.kv_cache {
            let message = format!("the {} backend has no KV cache to save", self.model.device);
            return Err(Error::unsupported("session", message));
        }
        self.table.save(sequence, self.executable.block_storage(), out)
    }

    /// Restores a saved state into `sequence`. On an error the sequence is unchanged, or empty if forks have taken its
    /// blocks.
    pub fn restore(&mut self, sequence: usize, saved: &SavedSequence<'_>) -> Result<usize> {
        let found = self.table.saved_blocks(saved, self.executable.block_storage())?;
        self.table.remove(sequence);
        self.table.restore(saved, &found, self.executable.block_storage_mut())
    }

    /// Releases unused memory to the operating system, which provides it again on demand.
    pub fn trim(&mut self) {
        self.table.release_free(self.executable.block_storage_mut());
    }

    /// Returns the bytes of activations and of the KV cache.
    pub fn memory(&self) -> MemoryUse {
        self.executable.memory()
    }

    /// Returns the handle that cancels a pass.
    pub fn cancel_handle(&self) -> &CancelHandle {
        &self.cancel
    }

    /// Replaces the handle that cancels a pass.
    pub fn set_cancel_handle(&mut self, cancel: &CancelHandle) {
        self.cancel = cancel.clone();
    }

    /// Returns which blocks of the KV cache belong to which sequence.
    pub fn block_table(&self) -> &BlockTable {
        &self.table
    }

    /// Returns the model.
    pub fn model(&self) -> &LoadedModel {
        &self.model
    }

    /// Runs a forward pass over tokens of one or more sequences in one batch. [`Context::output`] then has one row for
    /// each token whose logits were requested, in order. On an error the sequences are unchanged, except that blocks which
    /// left a sliding window stay dropped.
    pub fn forward(&mut self, entries: &[BatchEntry<'_>]) -> Result<()> {
        self.canceled.clear();
        let extended = self.builder().extend(entries);
        let outcome =
            self.copy_blocks().and(extended).and_then(|()| self.run(self.passes.index(ModelPart::Decoder)?));
        if outcome.is_err() {
            self.builder().roll_back(|_| true);
            self.batch.clear();
            return self.settle(outcome);
        }
        let is_canceled = |entry: &BatchEntry<'_>| entry.cancel.is_some_and(CancelHandle::is_canceled);
        self.canceled.extend(entries.iter().filter(|entry| is_canceled(entry)).map(|entry| entry.sequence));
        if !self.canceled.is_empty() {
            let canceled = std::mem::take(&mut self.canceled);
            self.builder().roll_back(|sequence| canceled.contains(&sequence));
            self.canceled = canceled;
        }
        self.batch.sequences.iter().for_each(|&sequence| self.table.commit(sequence));
        Ok(())
    }

    /// Returns whether a sequence was canceled while the last batch ran: it is as it was before, and the output rows of
    /// all its entries are to be ignored. The handles of entries are not reset.
    pub fn is_canceled(&self, sequence: usize) -> bool {
        self.canceled.contains(&sequence)
    }

    /// Encodes whole sequences in one batch, each in a cache sequence of its own that drops what it encoded before.
    /// [`Context::output`] then has one row for each requested token, in order. If validation fails nothing changes; if
    /// the pass fails, the cache sequences are empty.
    pub fn encode(&mut self, texts: &[SequenceInput<'_>]) -> Result<()> {
        self.canceled.clear();
        let outcome =
            self.builder().list(texts)?.and_then(|()| self.run(self.passes.index(ModelPart::Encoder)?));
        texts.iter().for_each(|text| self.table.end_encoding(text.sequence));
        if outcome.is_err() {
            self.builder().forget(texts);
        }
        self.settle(outcome)
    }

    /// Declares that the following batches bring a sequence to `length` tokens. Models whose RoPE frequencies depend on
    /// the sequence length use those of `length` for all of these tokens; ignored by other models.
    pub fn set_expected_length(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.table.set_expected_length(sequence, length)
    }

    /// Makes the first `count` tokens of an empty sequence attend to each other bidirectionally (prefix LM). They must
    /// be passed in one batch.
    pub fn set_bidirectional_prefix(&mut self, sequence: usize, count: usize) -> Result<()> {
        self.table.set_bidirectional_prefix(sequence, count)
    }

    /// Returns output row `row` of the last batch; empty if there is none.
    pub fn output(&self, row: usize) -> &[f32] {
        if row >= self.batch.output_rows.len() {
            return &[];
        }
        self.executable.output(row)
    }

    /// Returns the passes of whole parts.
    pub fn passes(&self) -> &ForwardPasses {
        &self.passes
    }

    /// Resets the cancel handle only if it was what ended the pass, not on another error.
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Canceled) {
            self.cancel.reset();
        }
        outcome
    }

    fn builder(&mut self) -> BatchBuilder<'_> {
        let Self { model, passes, table, batch, .. } = self;
        BatchBuilder { config: &model.config, adapters: model.adapters().len(), passes, table, batch }
    }

    /// Copies the blocks that sequences no longer share.
    fn copy_blocks(&mut self) -> Result<()> {
        self.table.make_copies(|copy| self.executable.block_storage_mut().copy(copy))
    }

    /// Runs the batch through a pass, once the model's governor allows it.
    fn run(&mut self, number: usize) -> Result<()> {
        self.model.governor.wait(self.cancel.flag());
        let _scheduled = ScheduledPass::begin(self.pass_scheduler.as_deref(), self.cancel.flag())?;
        let mut pool = self.pool.lock();
        let governed = self.model.governor.begin(self.model.module.threads());
        let input = ForwardInput {
            pass: number,
            batch: &self.batch,
            block_table: &self.table,
            cancel: self.cancel.flag(),
            threads: governed.threads,
        };
        let passed = self.executable.forward(&mut pool, input);
        drop(pool);
        let outcome = passed.and_then(|()| {
            (0..self.batch.output_rows.len())
                .try_for_each(|row| Error::unless_finite("output", self.output(row)))
        });
        let decodes = self.passes.is_decoder(number) && self.batch.is_decode();
        self.model.governor.end(governed, outcome.is_ok() && decodes);
        outcome
    }
}
