//! An open model: a file on a device, with its tokenizer and chat template.

mod budget;

use std::path::Path;
use std::sync::Arc;

use siskin_kernels::ops::Kernels;

use crate::adapter::Adapter;
use crate::arch::{ConfigReader, Graphs, ModelConfig};
use crate::backend::MemoryUse;
use crate::backend::block_table::CacheOptions;
use crate::context::{Context, ContextOptions, Resources};
use crate::encoder::{Encoder, EncoderOptions};
use crate::external_backend::{ExternalBackend, NamedTensor};
use crate::file::File;
use crate::governor::Governor;
use crate::graph::pass::layers::LayerSet;
use crate::loaded_model::{LoadedModel, ModelOptions};
use crate::seq2seq::{Seq2Seq, Seq2SeqOptions};
use crate::session::{Session, SessionMemory, SessionOptions};
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// An open model. Cloning is cheap and shares it; sessions keep it alive.
#[derive(Clone)]
pub struct Model {
    loaded: Arc<LoadedModel>,
    tokenizer: Option<Arc<Tokenizer>>,
}

impl Model {
    /// Opens a `.siskin` file with default options.
    ///
    /// ```no_run
    /// let model = siskin::Model::open("smollm2.siskin")?;
    /// let mut chat = model.session(Default::default())?;
    /// for piece in chat.ask("Why is the sky blue?")? {
    ///     print!("{}", piece?);
    /// }
    /// # Ok::<(), siskin::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_file(File::open(path)?, &ModelOptions::default())
    }

    /// Creates a model from an open file: builds its graph and binds its weights without reading them.
    pub fn from_file(file: File, options: &ModelOptions) -> Result<Self> {
        Self::made(file, None, options)
    }

    /// Creates a model from an open file and an adapter, without checking that the adapter was trained on these
    /// weights; see [`Adapter::check_base`].
    ///
    /// # Errors
    /// Fails if a part matches no matrix of the model.
    pub fn with_adapter(file: File, adapter: &Adapter, options: &ModelOptions) -> Result<Self> {
        Self::made(file, Some(adapter), options)
    }

    fn made(file: File, adapter: Option<&Adapter>, options: &ModelOptions) -> Result<Self> {
        Self::of(LoadedModel::new(file, adapter, options)?)
    }

    fn of(loaded: LoadedModel) -> Result<Self> {
        let tokenizer = loaded.file.tokenizer().map(Tokenizer::open).transpose()?;
        Ok(Self { loaded: Arc::new(loaded), tokenizer: tokenizer.map(Arc::new) })
    }

    /// Creates a model that `engine` computes. `file` holds no tensors, only the configuration, tokenizer and chat
    /// template if there are any.
    pub fn from_backend(
        file: File,
        engine: Arc<dyn ExternalBackend>,
        options: &ModelOptions,
    ) -> Result<Self> {
        Self::of(LoadedModel::external(file, engine, options)?)
    }

    pub(crate) fn loaded(&self) -> &LoadedModel {
        &self.loaded
    }

    /// Returns notes for the user about how the model runs, such as that it is slower than it could be.
    pub fn notes(&self) -> &[String] {
        &self.loaded.notes
    }

    /// Returns the external backend that computes the model, if there is one.
    pub fn backend(&self) -> Option<&Arc<dyn ExternalBackend>> {
        self.loaded.external.as_ref()
    }

    /// Computes the outputs of an external backend's model from its inputs.
    pub fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
        let engine = self.loaded.external.as_ref().ok_or_else(|| {
            Error::unsupported(
                "model",
                "the model takes tokens, not named tensors; use a session or an encoder",
            )
        })?;
        engine.run(inputs)
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.loaded.file
    }

    /// Returns the identity of the model: a hash of the file and of the adapter, if there is one.
    pub fn identity(&self) -> [u8; 32] {
        let identity = self.loaded.file.identity();
        match self.loaded.adapter_identity() {
            None => identity,
            Some(adapter) => *blake3::Hasher::new().update(&identity).update(adapter).finalize().as_bytes(),
        }
    }

    /// Returns the configuration stored in the file.
    pub(crate) fn config_reader(&self) -> ConfigReader {
        ConfigReader::new(self.loaded.file.metadata().config.clone())
    }

    /// Returns the name of the model's family.
    pub fn family(&self) -> &'static str {
        self.loaded.family.name
    }

    /// Returns the hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.loaded.config
    }

    /// Returns the graphs as the family built them.
    pub fn graphs(&self) -> &Graphs {
        &self.loaded.graphs
    }

    /// Returns the tokenizer, or an error if the file has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_deref().ok_or_else(|| {
            let message = "missing from the file, so the model only takes token ids; put its \
                           tokenizer.json beside its weights, and open or convert them again";
            Error::new(ErrorKind::Missing, "tokenizer", message)
        })
    }

    /// Returns the token ids that end a generation; empty without a tokenizer.
    pub fn end_ids(&self) -> &[u32] {
        self.tokenizer.as_deref().map_or(&[], Tokenizer::end_ids)
    }

    /// Returns the kernels that compute the model.
    pub(crate) fn kernel_table(&self) -> Kernels {
        self.loaded.kernels
    }

    /// Returns how many token ids can be sampled: the smaller of the logits' size and the tokenizer's vocabulary, so
    /// that padding rows of the LM head are excluded.
    pub(crate) fn choices(&self) -> usize {
        let head = self.config().vocabulary;
        let tokens = self.tokenizer.as_ref().map(|tokenizer| tokenizer.vocabulary_size().max(1) as usize);
        tokens.map_or(head, |tokens| tokens.min(head))
    }

    /// Returns the chat template, if the file has one.
    pub fn template(&self) -> Result<Option<ChatTemplate>> {
        self.loaded.file.template().map(ChatTemplate::new).transpose()
    }

    /// Returns the skipped layers.
    pub fn skipped(&self) -> LayerSet {
        self.loaded.skip
    }

    /// Returns the name of the backend that runs the model, such as `cpu`.
    pub fn device(&self) -> &'static str {
        self.loaded.device
    }

    /// Returns the names of the kernels chosen for this machine.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.loaded.module.kernels()
    }

    /// Returns the number of compute threads.
    pub fn threads(&self) -> usize {
        self.loaded.module.threads()
    }

    /// Returns the governor, which throttles everything that computes with this model; off by default.
    pub fn governor(&self) -> &Governor {
        &self.loaded.governor
    }

    /// Returns the plans of the CPU for a session with default options, as text.
    pub fn plan_text(&self) -> Result<String> {
        self.loaded.plan_text(SessionOptions::default().batch)
    }

    /// Allocates a context for `sequences` sequences of up to `context` tokens each, of which `wanted` rows give
    /// outputs, with a thread pool of its own.
    pub fn context(&self, options: &SessionOptions, sequences: usize, wanted: usize) -> Result<Context> {
        self.new_context(options, sequences, wanted, None)
    }

    /// Like [`Model::context`], on resources that other contexts use as well.
    pub fn context_on(
        &self,
        resources: &Resources,
        options: &SessionOptions,
        sequences: usize,
        wanted: usize,
    ) -> Result<Context> {
        self.new_context(options, sequences, wanted, Some(resources))
    }

    fn new_context(
        &self,
        options: &SessionOptions,
        sequences: usize,
        wanted: usize,
        resources: Option<&Resources>,
    ) -> Result<Context> {
        let made = self.context_options(options, sequences, wanted)?;
        if let Some(budget) = options.budget {
            budget::check(budget, made.cache.context, &|context| {
                let options = SessionOptions { context, ..options.clone() };
                let options = self.context_options(&options, sequences, wanted)?;
                let MemoryUse { activations, kv_cache } = self.loaded.context_memory(&options)?;
                Ok(activations.saturating_add(kv_cache))
            })?;
        }
        Context::new(Arc::clone(&self.loaded), &made, resources)
    }

    /// Returns the memory that a session with these options would use, without reserving it.
    pub fn memory(&self, options: &SessionOptions) -> Result<SessionMemory> {
        let sequences = options.forks.saturating_add(1);
        let made = self.context_options(options, sequences, sequences)?;
        let MemoryUse { activations, kv_cache } = self.loaded.context_memory(&made)?;
        let mapped = self.loaded.file.bytes().len();
        Ok(SessionMemory { arena: activations, cache: kv_cache, mapped })
    }

    fn context_options(
        &self,
        options: &SessionOptions,
        sequences: usize,
        wanted: usize,
    ) -> Result<ContextOptions> {
        self.loaded.check_cache(options.cache, options.window)?;
        let model = &self.loaded;
        let most = model.config.context.max(1);
        if options.context > most {
            return Err(Error::new(
                ErrorKind::TooLong,
                "context",
                format!("{} tokens; the model supports at most {most}", options.context),
            ));
        }
        let context = if options.context == 0 { most.min(2048) } else { options.context };
        let text = match model.graphs.encoder {
            None => 0,
            Some(_) if options.text == 0 => model.config.text.min(2048),
            Some(_) => options.text.min(model.config.text),
        };
        let cache = CacheOptions {
            types: model.cache_types(options.cache),
            context,
            sequences: sequences.max(1),
            batch: options.batch.clamp(1, context),
            text,
        };
        if options.window.is_some_and(|window| window.recent == 0) {
            return Err(Error::argument("window", "must be at least 1"));
        }
        let window = options.window;
        Ok(ContextOptions { cache, window, wanted: wanted.max(1), read: 0, head: true, exits: false })
    }

    /// Allocates an encoder context for `rows` tokens per batch, of which `outputs` give outputs.
    pub(crate) fn reading_context(
        &self,
        options: &EncoderOptions,
        rows: usize,
        outputs: usize,
    ) -> Result<Context> {
        let model = &self.loaded;
        let cache = CacheOptions {
            types: model.cache_types(options.cache),
            context: 0,
            sequences: rows,
            batch: 0,
            text: rows,
        };
        let exits = options.early.is_some();
        let options =
            ContextOptions { cache, window: None, wanted: 0, read: outputs, head: options.head, exits };
        Context::new(Arc::clone(model), &options, None)
    }

    /// Allocates a generation context for many sequences, of which `rows` give outputs per batch.
    pub(crate) fn writing_context(&self, cache: CacheOptions, rows: usize) -> Result<Context> {
        let options = ContextOptions { cache, window: None, wanted: rows, read: 0, head: true, exits: false };
        Context::new(Arc::clone(&self.loaded), &options, None)
    }

    /// Creates a sequence-to-sequence generator.
    pub fn seq2seq(&self, options: Seq2SeqOptions) -> Result<Seq2Seq> {
        Seq2Seq::new(self.clone(), options)
    }

    /// Creates an encoder for whole sequences.
    pub fn encoder(&self, options: EncoderOptions) -> Result<Encoder> {
        Encoder::new(self.clone(), options)
    }

    /// Creates a session: one conversation or text.
    pub fn session(&self, options: SessionOptions) -> Result<Session> {
        if self.loaded.graphs.decoder.is_none() {
            return Err(Error::unsupported(
                "model",
                "it is encoder-only and cannot generate text; use an encoder",
            ));
        }
        Session::new(self.clone(), options)
    }
}
