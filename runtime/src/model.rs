//! An open model: file, graph, weights, tokenizer and the kernels chosen for this CPU.

mod budget;

use std::path::Path;
use std::sync::Arc;

use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::attention::CacheType;
use siskin_kernels::{Cpu, CpuFeatures};

use crate::adapter::{Adapter, AdapterTensors};
use crate::arch::{ConfigReader, Family, Graphs, ModelConfig};
use crate::backend::cpu::{self, CpuModule};
use crate::backend::external::ExternalModule;
use crate::backend::reference::ReferenceModule;
use crate::backend::{GraphPass, GraphSide, ModelWeights, Module};
use crate::cache::{CacheOptions, CacheTypes};
use crate::context::{Context, ContextOptions};
use crate::encoder::{Encoder, EncoderOptions};
use crate::external_backend::{self, ExternalBackend, NamedTensor};
use crate::file::{File, SectionKind};
use crate::governor::Governor;
use crate::graph::Graph;
use crate::graph::pass::layers::LayerSet;
use crate::plan::Weights;
use crate::seq2seq::{Seq2Seq, Seq2SeqOptions};
use crate::session::{Session, SessionMemory, SessionOptions};
use crate::template::ChatTemplate;
use crate::thread_pool;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeviceKind {
    /// The fastest device that this build supports: the CPU.
    #[default]
    Auto,
    /// The CPU: plans on a thread pool, with the best kernels for it.
    Cpu,
    /// Reference code on one thread of the CPU, slow: for tests and for `doctor`.
    Reference,
}

/// Options for opening a model.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Compute threads; 0: one for each core that keeps up with the fastest.
    pub threads: usize,
    /// Where the model runs.
    pub device: DeviceKind,
    /// CPU features that must not be used.
    pub without: CpuFeatures,
    /// Layer skipping (LayerSkip, arXiv:2404.16710): the input of a skipped layer becomes its output. Requires a model
    /// whose layers have the same structure.
    pub skip: LayerSet,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self { threads: 0, device: DeviceKind::default(), without: CpuFeatures::NONE, skip: LayerSet::NONE }
    }
}

/// The maximum number of threads in a thread pool.
const MOST_THREADS: usize = 256;

/// State shared by all sessions of a model.
pub(crate) struct Inner {
    pub file: File,
    pub family: &'static Family,
    pub hyper: ModelConfig,
    pub graphs: Graphs,
    pub weights: Arc<ModelWeights>,
    pub tokenizer: Option<Tokenizer>,
    /// What runs the graphs.
    pub module: Arc<dyn Module>,
    /// Kernels for work outside of passes, such as the probabilities of a beam search.
    pub kernels: Kernels,
    /// The skipped layers.
    pub skip: LayerSet,
    /// The external backend that computes the model instead of the graphs.
    pub external: Option<Arc<dyn ExternalBackend>>,
    /// Notes for the user about how the model runs.
    pub notes: Vec<String>,
    pub governor: Governor,
    /// Identity of the adapter applied to the weights.
    pub adapter: Option<[u8; 32]>,
}

/// An open model. Cloning is cheap and shares it; sessions keep it alive.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
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

    pub(crate) fn made(file: File, adapter: Option<&Adapter>, options: &ModelOptions) -> Result<Self> {
        let metadata = file.metadata();
        if metadata.architecture == external_backend::GENERAL {
            let message = "is a placeholder for a model of another format; open that model";
            return Err(Error::unsupported("metadata.architecture", message));
        }
        if metadata.config.is_empty() && file.section(SectionKind::Adapter).is_some() {
            let message = "is an adapter without a model; open its base model with this adapter";
            return Err(Error::argument("file", message));
        }
        let family = Family::named(&metadata.architecture).map_err(|error| error.within("metadata"))?;
        let config = ConfigReader::new(metadata.config.clone());
        let (hyper, graphs) = family.build(&config, &|name| file.tensor(name).is_some())?;
        let mut graphs = graphs.without_layers(options.skip)?;
        let odd = graphs.iter().flat_map(Graph::attentions).find(|attention| attention.head_size % 2 != 0);
        if let Some(odd) = odd {
            return Err(Error::unsupported("config (head size)", format!("{} is odd", odd.head_size)));
        }
        let all = options.skip == LayerSet::NONE;
        let placed =
            adapter.map(|adapter| AdapterTensors::new(&mut graphs, &file, adapter, all)).transpose()?;
        let placed = placed.unwrap_or_default();
        let bind = |graph: &Option<Graph>| {
            let bind = |graph| Weights::bind(graph, &file, &placed);
            graph.as_ref().map_or_else(|| Ok(Weights::default()), bind)
        };
        let (encoder, decoder) = (bind(&graphs.encoder)?, bind(&graphs.decoder)?);
        let weights = Arc::new(ModelWeights { encoder, decoder });
        let tokenizer = file.tokenizer().map(Tokenizer::open).transpose()?;
        let threads = if options.threads == 0 { thread_pool::worth_using() } else { options.threads };
        let kernels = Kernels::for_cpu(Cpu::detect().without(options.without));
        let module: Arc<dyn Module> = match options.device {
            DeviceKind::Reference => Arc::new(ReferenceModule::new(Arc::clone(&weights))),
            DeviceKind::Auto | DeviceKind::Cpu => {
                Arc::new(CpuModule::new(Arc::clone(&weights), kernels, threads.min(MOST_THREADS)))
            }
        };
        let inner = Inner {
            family,
            hyper,
            graphs,
            weights,
            tokenizer,
            governor: Governor::new(module.threads()),
            module,
            kernels,
            skip: options.skip,
            external: None,
            notes: Vec::new(),
            adapter: adapter.map(Adapter::identity),
            file,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Creates a model that `engine` computes. `file` holds no tensors, only the configuration, tokenizer and chat
    /// template if there are any.
    pub fn from_backend(
        file: File,
        engine: Arc<dyn ExternalBackend>,
        options: &ModelOptions,
    ) -> Result<Self> {
        let refusals = [
            (options.skip != LayerSet::NONE, "layers", "it cannot skip layers"),
            (options.device == DeviceKind::Reference, "device", "leave out the device"),
            (options.without != CpuFeatures::NONE, "cpu_features", "leave out the CPU features"),
        ];
        if let Some((_, place, message)) = refusals.into_iter().find(|(is_asked, ..)| *is_asked) {
            return Err(Error::unsupported(
                place,
                format!("the model runs on an external backend; {message}"),
            ));
        }
        let mut notes = vec![engine.note()];
        if options.threads > 1 {
            notes.push(format!("computes with one thread, not {}", options.threads));
        }
        let (hyper, graphs) = external_backend::shape(&engine.interface());
        let inner = Inner {
            family: &external_backend::FAMILY,
            hyper,
            graphs,
            weights: Arc::default(),
            tokenizer: file.tokenizer().map(Tokenizer::open).transpose()?,
            module: Arc::new(ExternalModule::new(Arc::clone(&engine))),
            kernels: Kernels::for_cpu(Cpu::detect()),
            skip: options.skip,
            notes,
            governor: Governor::new(1),
            external: Some(engine),
            adapter: None,
            file,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns notes for the user about how the model runs, such as that it is slower than it could be.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// Returns the external backend that computes the model, if there is one.
    pub fn backend(&self) -> Option<&Arc<dyn ExternalBackend>> {
        self.inner.external.as_ref()
    }

    /// Computes the outputs of an external backend's model from its inputs.
    pub fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
        let engine = self.inner.external.as_ref().ok_or_else(|| {
            Error::unsupported(
                "model",
                "the model takes tokens, not named tensors; use a session or an encoder",
            )
        })?;
        engine.run(inputs)
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.inner.file
    }

    /// Returns the identity of the model: a hash of the file and of the adapter, if there is one.
    pub fn identity(&self) -> [u8; 32] {
        let identity = self.inner.file.identity();
        match self.inner.adapter {
            None => identity,
            Some(adapter) => *blake3::Hasher::new().update(&identity).update(&adapter).finalize().as_bytes(),
        }
    }

    /// Returns the configuration stored in the file.
    pub(crate) fn config_reader(&self) -> ConfigReader {
        ConfigReader::new(self.inner.file.metadata().config.clone())
    }

    /// Returns the name of the model's family.
    pub fn family(&self) -> &'static str {
        self.inner.family.name
    }

    /// Returns the hyper-parameters.
    pub fn config(&self) -> &ModelConfig {
        &self.inner.hyper
    }

    /// Returns the graphs as the family built them.
    pub fn graphs(&self) -> &Graphs {
        &self.inner.graphs
    }

    /// Returns the tokenizer, or an error if the file has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.inner.tokenizer.as_ref().ok_or_else(|| {
            let message = "missing from the file, so the model only takes token ids; put its \
                           tokenizer.json beside its weights, and open or convert them again";
            Error::new(ErrorKind::Missing, "tokenizer", message)
        })
    }

    /// Returns the token ids that end a generation; empty without a tokenizer.
    pub fn end_ids(&self) -> &[u32] {
        self.inner.tokenizer.as_ref().map_or(&[], Tokenizer::end_ids)
    }

    /// Returns the kernels that compute the model.
    pub(crate) fn kernel_table(&self) -> Kernels {
        self.inner.kernels
    }

    /// Returns how many token ids can be sampled: the smaller of the logits' size and the tokenizer's vocabulary, so
    /// that padding rows of the LM head are excluded.
    pub(crate) fn choices(&self) -> usize {
        let head = self.config().vocabulary;
        let tokens =
            self.inner.tokenizer.as_ref().map(|tokenizer| tokenizer.vocabulary_size().max(1) as usize);
        tokens.map_or(head, |tokens| tokens.min(head))
    }

    /// Returns the chat template, if the file has one.
    pub fn template(&self) -> Result<Option<ChatTemplate>> {
        self.inner.file.template().map(ChatTemplate::new).transpose()
    }

    /// Returns the skipped layers.
    pub fn skipped(&self) -> LayerSet {
        self.inner.skip
    }

    /// Returns the names of the kernels chosen for this machine.
    pub fn kernels(&self) -> Vec<&'static str> {
        self.inner.module.kernels()
    }

    /// Returns the number of compute threads.
    pub fn threads(&self) -> usize {
        self.inner.module.threads()
    }

    /// Returns the governor, which throttles everything that computes with this model; off by default.
    pub fn governor(&self) -> &Governor {
        &self.inner.governor
    }

    /// Returns the plans of the CPU for a session with default options, as text.
    pub fn plan_text(&self) -> Result<String> {
        let rows = SessionOptions::default().batch;
        let pass = |graph: &Option<Graph>, side| {
            let graph = graph.clone()?;
            Some(GraphPass { graph, side, rows, outputs: 1, positions: rows })
        };
        let Graphs { encoder, decoder } = &self.inner.graphs;
        let passes = [pass(encoder, GraphSide::Encoder), pass(decoder, GraphSide::Decoder)];
        let passes: Vec<GraphPass> = passes.into_iter().flatten().collect();
        cpu::plan_text(&passes, &self.inner.weights)
    }

    /// Returns the element types of the KV cache: `asked`, or the default for this model. A model with f32 weights
    /// caches f32. Transient keys and values, which are dropped after their layer, stay f32: packing them does not pay
    /// off.
    pub(crate) fn cache_types(&self, asked: Option<CacheType>) -> CacheTypes {
        let kept = match self.inner.weights.any_full_precision() {
            true => CacheType::F32,
            false => CacheType::F16,
        };
        asked.map_or(CacheTypes { kept, passing: CacheType::F32 }, CacheTypes::all)
    }

    /// Returns an error if the options set a KV cache type or a sliding window that the external backend does not
    /// support.
    pub(crate) fn check_backend(
        &self,
        cache: Option<CacheType>,
        window: Option<crate::Window>,
    ) -> Result<()> {
        if self.inner.module.capabilities().kv_cache {
            return Ok(());
        }
        if cache.is_some_and(|cache| cache != CacheType::F32) {
            let message =
                "the model runs on an external backend without a KV cache; do not set the KV cache type";
            return Err(Error::unsupported("cache", message));
        }
        match window {
            None => Ok(()),
            Some(_) => {
                let message =
                    "the model runs on an external backend with full causal attention; do not set a window";
                Err(Error::unsupported("window", message))
            }
        }
    }

    /// Allocates a context for `sequences` sequences of up to `context` tokens each, of which `wanted` rows give
    /// outputs.
    pub fn context(&self, options: &SessionOptions, sequences: usize, wanted: usize) -> Result<Context> {
        let made = self.context_options(options, sequences, wanted)?;
        if let Some(budget) = options.budget {
            budget::check(budget, made.cache.context, &|context| {
                let options = SessionOptions { context, ..options.clone() };
                let (arena, cache) =
                    Context::cost(&self.inner, &self.context_options(&options, sequences, wanted)?)?;
                Ok(arena.saturating_add(cache))
            })?;
        }
        Context::new(Arc::clone(&self.inner), made)
    }

    /// Returns the memory that a session with these options would use, without reserving it.
    pub fn memory(&self, options: &SessionOptions) -> Result<SessionMemory> {
        let sequences = options.forks.saturating_add(1);
        let (arena, cache) =
            Context::cost(&self.inner, &self.context_options(options, sequences, sequences)?)?;
        Ok(SessionMemory { arena, cache, mapped: self.inner.file.bytes().len() })
    }

    fn context_options(
        &self,
        options: &SessionOptions,
        sequences: usize,
        wanted: usize,
    ) -> Result<ContextOptions> {
        self.check_backend(options.cache, options.window)?;
        let model = &self.inner;
        let most = model.hyper.context.max(1);
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
            Some(_) if options.text == 0 => model.hyper.text.min(2048),
            Some(_) => options.text.min(model.hyper.text),
        };
        let cache = CacheOptions {
            types: self.cache_types(options.cache),
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
        let model = &self.inner;
        let cache = CacheOptions {
            types: self.cache_types(options.cache),
            context: 0,
            sequences: rows,
            batch: 0,
            text: rows,
        };
        let exits = options.early.is_some();
        let options =
            ContextOptions { cache, window: None, wanted: 0, read: outputs, head: options.head, exits };
        Context::new(Arc::clone(model), options)
    }

    /// Allocates a generation context for many sequences, of which `rows` give outputs per batch.
    pub(crate) fn writing_context(&self, cache: CacheOptions, rows: usize) -> Result<Context> {
        let options = ContextOptions { cache, window: None, wanted: rows, read: 0, head: true, exits: false };
        Context::new(Arc::clone(&self.inner), options)
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
        if self.inner.graphs.decoder.is_none() {
            return Err(Error::unsupported(
                "model",
                "it is encoder-only and cannot generate text; use an encoder",
            ));
        }
        Session::new(self.clone(), options)
    }
}
