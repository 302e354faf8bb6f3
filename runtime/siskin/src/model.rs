//! An open model: a file on a device, with its tokenizer and chat template.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use siskin_kernels::ops::Kernels;

use crate::constraint::{ConstraintCompiler, StructuredOutput, TokenConstraint};
use crate::{Error, Result};
use siskin_backend::context::{Context, ContextOptions, Resources};
use siskin_backend::external_model::{ExternalModel, NamedTensor};
use siskin_backend::governor::Governor;
use siskin_backend::loaded_model::{LoadedModel, ModelAdapters, ModelOptions};
use siskin_chat_template::ChatTemplate;
use siskin_format::file::File;
use siskin_format::kv::KvIdentity;
use siskin_graph::AdapterSlot;
use siskin_graph::adapter::{Adapter, NamedAdapter};
use siskin_graph::arch::{ConfigReader, Graphs, ModelConfig, Tasks};
use siskin_graph::pass::layers::LayerSet;
use siskin_tokenizer::Tokenizer;

/// An open model. Cloning is cheap and shares it; sessions keep it alive.
#[derive(Clone)]
pub struct Model {
    loaded: Arc<LoadedModel>,
    tokenizer: Option<Arc<Tokenizer>>,
    constraints: Arc<ConstraintCompiler>,
    template: Arc<OnceLock<ChatTemplate>>,
    /// The threads of an engine; `None`: each context has its own.
    /// What its contexts share with others.
    resources: Option<Resources>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("family", &self.family()).finish_non_exhaustive()
    }
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
        Self::load(file, ModelAdapters::None, options)
    }

    /// Creates a model from an open file and an adapter, without checking that the adapter was trained on these
    /// weights; see [`Adapter::check_base`].
    ///
    /// # Errors
    /// Fails if a part matches no matrix of the model.
    pub fn with_adapter(file: File, adapter: &Adapter, options: &ModelOptions) -> Result<Self> {
        Self::load(file, ModelAdapters::Applied(adapter), options)
    }

    /// Creates a model from an open file and adapters of which each session or request chooses one by its name, or none.
    /// Those of different requests share a batch; a request has the bits of a model that was opened with its adapter.
    ///
    /// # Errors
    /// Fails if a part of an adapter matches no matrix of the model, or if two adapters have the same name.
    pub fn with_adapters(file: File, adapters: &[NamedAdapter], options: &ModelOptions) -> Result<Self> {
        Self::load(file, ModelAdapters::PerSequence(adapters), options)
    }

    fn load(file: File, adapters: ModelAdapters<'_>, options: &ModelOptions) -> Result<Self> {
        Self::new(LoadedModel::new(file, adapters, options)?)
    }

    /// Returns the slot of the adapter with this name.
    ///
    /// # Errors
    /// If the model was not opened with it to choose from.
    pub fn adapter_slot(&self, name: &str) -> Result<AdapterSlot> {
        self.loaded.adapter_slot(Some(name))
    }

    /// Returns the names of the adapters that sessions and requests choose from.
    pub fn adapters(&self) -> impl Iterator<Item = &str> {
        self.loaded.adapters().iter().map(|adapter| adapter.name.as_str())
    }

    /// Creates a model from one that is on its device, as the functions of other crates that open files return it.
    pub fn new(loaded: LoadedModel) -> Result<Self> {
        let tokenizer = loaded.file.tokenizer().map(Tokenizer::open).transpose()?;
        Ok(Self {
            loaded: Arc::new(loaded),
            tokenizer: tokenizer.map(Arc::new),
            constraints: Arc::default(),
            template: Arc::default(),
            resources: None,
        })
    }

    /// Creates a model that `engine` computes. `file` holds no tensors, only the configuration, tokenizer and chat
    /// template if there are any.
    pub fn from_external_model(
        file: File,
        engine: Arc<dyn ExternalModel>,
        options: &ModelOptions,
    ) -> Result<Self> {
        Self::new(LoadedModel::external(file, engine, options)?)
    }

    /// Returns whether both are one loaded model.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.loaded, &other.loaded)
    }

    /// Returns the model with contexts on these resources.
    pub(crate) fn with_resources(&self, resources: Resources) -> Self {
        Self { resources: Some(resources), ..self.clone() }
    }

    /// Allocates a context on resources that it shares with others, if there are any.
    pub(crate) fn create_context(
        &self,
        options: &ContextOptions,
        resources: Option<&Resources>,
    ) -> Result<Context> {
        Context::new(Arc::clone(&self.loaded), options, resources.or(self.resources.as_ref()))
    }

    pub(crate) fn loaded(&self) -> &Arc<LoadedModel> {
        &self.loaded
    }

    /// Returns notes for the user about how the model runs, such as that it is slower than it could be.
    pub fn notes(&self) -> &[String] {
        &self.loaded.notes
    }

    /// Returns the external model that is computed, if there is one.
    pub fn external_model(&self) -> Option<&Arc<dyn ExternalModel>> {
        self.loaded.external.as_ref()
    }

    /// Computes the outputs of an external model from its inputs.
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

    /// Returns the identity of the model: a hash of the file and of the adapter that it was opened with, if there is one.
    pub fn identity(&self) -> [u8; 32] {
        self.identity_with(AdapterSlot::MODEL)
    }

    /// Returns the identity of the model with an adapter: that of a model which was opened with it.
    pub fn identity_with(&self, adapter: AdapterSlot) -> [u8; 32] {
        let identity = self.loaded.file.identity();
        match self.loaded.adapter_identity(adapter) {
            None => identity,
            Some(adapter) => *blake3::Hasher::new().update(&identity).update(adapter).finalize().as_bytes(),
        }
    }

    /// Returns the identity of KV caches that the model computes with an adapter.
    pub(crate) fn kv_identity(&self, adapter: AdapterSlot) -> KvIdentity {
        let skipped_layers = self.skipped().numbers().map(|number| number as u32).collect();
        KvIdentity { model: self.identity_with(adapter), skipped_layers }
    }

    /// Returns the configuration stored in the file.
    pub(crate) fn config_reader(&self) -> ConfigReader {
        ConfigReader::new(self.loaded.file.metadata().config.clone())
    }

    /// Returns the name of the model's family.
    pub fn family(&self) -> &'static str {
        self.loaded.family.name
    }

    /// Returns true if the model transcribes speech.
    pub fn can_transcribe(&self) -> bool {
        self.tasks().transcription
    }

    pub(crate) fn tasks(&self) -> Tasks {
        self.loaded.family.tasks
    }

    /// Returns the hyperparameters.
    pub fn config(&self) -> &ModelConfig {
        &self.loaded.config
    }

    /// Returns the graphs as the family built them.
    pub fn graphs(&self) -> &Graphs {
        &self.loaded.graphs
    }

    /// Returns the tokenizer, or an error if the file has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_deref().ok_or_else(Tokenizer::missing)
    }

    /// Replaces `bytes` by those that a token decodes to, special tokens only with `with_special`; none without a
    /// tokenizer.
    pub(crate) fn token_bytes(&self, id: u32, with_special: bool, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        self.tokenizer.as_deref().map_or(Ok(()), |tokenizer| tokenizer.piece_into(id, with_special, bytes))
    }

    /// Returns the token ids that end a generation; empty without a tokenizer.
    pub fn end_ids(&self) -> &[u32] {
        self.tokenizer.as_deref().map_or(&[], Tokenizer::end_ids)
    }

    /// Compiles a constraint for the tokens of the model, or returns it from the cache.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if a grammar or schema is invalid, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for those that cannot be enforced.
    pub fn constraint(&self, output: &StructuredOutput) -> Result<Box<dyn TokenConstraint>> {
        let tokenizer = self.tokenizer.as_ref().ok_or_else(Tokenizer::missing)?;
        self.constraints.compile(output, tokenizer, self.choices())
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
        if let Some(template) = self.template.get() {
            return Ok(Some(template.clone()));
        }
        let template = self.loaded.file.template().map(ChatTemplate::new).transpose()?;
        Ok(template.map(|template| self.template.get_or_init(|| template).clone()))
    }

    /// Returns the skipped layers.
    pub fn skipped(&self) -> LayerSet {
        self.loaded.skip
    }

    /// Returns the name of the backend that runs the model, such as `cpu`.
    pub fn device(&self) -> &'static str {
        self.loaded.device
    }

    /// Returns the default number of tokens per batch, which depends on the device.
    pub fn batch_tokens(&self) -> usize {
        self.loaded.module.batch_tokens()
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
}
