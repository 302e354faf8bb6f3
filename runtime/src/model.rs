//! An open model: file, graph, weights, tokenizer and the kernels chosen for it.

mod budget;

use std::path::Path;
use std::sync::Arc;

use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::attention::CacheType;
use siskin_kernels::{Cpu, Features};

use crate::adapter::{Adapter, Placed};
use crate::arch::{Config, Family, Graphs, ModelConfig};
use crate::cache::{CacheOptions, CacheTypes};
use crate::context::{Context, ContextOptions};
use crate::encoder::{Encoder, EncoderOptions};
use crate::external_backend::{self, Engine, NamedTensor};
use crate::file::{File, SectionKind};
use crate::governor::Governor;
use crate::graph::Graph;
use crate::graph::pass::{self, layers::LayerSet};
use crate::plan::{Plan, Weights};
use crate::seq2seq::{Writer, WriterOptions};
use crate::session::{Memory, Session, SessionOptions};
use crate::template::ChatTemplate;
use crate::thread_pool;
use crate::tokenizer::Tokenizer;
use crate::{Error, ErrorKind, Result};

/// Who runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ExecutorKind {
    /// The graph in plain words, on one thread: for tests and for `doctor`.
    Reference,
    /// The plan on a team of threads with the kernels of the machine.
    #[default]
    Cpu,
}

/// How a model is opened.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Threads that compute; 0: one for each core that keeps up with the fastest.
    pub threads: usize,
    /// Who runs the model.
    pub executor: ExecutorKind,
    /// Features of the processor that are not to be used.
    pub without: Features,
    /// Layers that are left out: what enters them goes on to the next. For models whose layers are made alike.
    pub skip: LayerSet,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self { threads: 0, executor: ExecutorKind::default(), without: Features::NONE, skip: LayerSet::NONE }
    }
}

/// The most threads of a team.
const MOST_THREADS: usize = 256;

/// What all sessions of a model share.
pub(crate) struct Inner {
    pub file: File,
    pub family: &'static Family,
    pub hyper: ModelConfig,
    pub graphs: Graphs,
    /// The weights of the encoder and of the decoder, where there is one.
    pub weights: [Weights; 2],
    pub tokenizer: Option<Tokenizer>,
    pub kernels: Kernels,
    /// The portable kernels, for the reference.
    pub scalar: Kernels,
    pub options: ModelOptions,
    /// Computes in the place of the graphs.
    pub engine: Option<Arc<dyn Engine>>,
    /// What there is to tell about how it runs.
    pub notes: Vec<String>,
    pub governor: Governor,
    /// What stands beside the weights: its identity.
    pub adapter: Option<[u8; 32]>,
}

/// An open model. Cloning shares it; sessions keep it alive.
#[derive(Clone)]
pub struct Model {
    inner: Arc<Inner>,
}

impl Model {
    /// Opens a `.siskin` file with the usual options.
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

    /// Makes a model of an open file: builds its graph and finds its weights, without reading them.
    pub fn from_file(file: File, options: &ModelOptions) -> Result<Self> {
        Self::made(file, None, options)
    }

    pub(crate) fn made(file: File, adapter: Option<&Adapter>, options: &ModelOptions) -> Result<Self> {
        let metadata = file.metadata();
        if metadata.architecture == external_backend::GENERAL {
            let message = "only stands in for a model of another format; open that";
            return Err(Error::unsupported("metadata.architecture", message));
        }
        if metadata.config.is_empty() && file.section(SectionKind::Adapter).is_some() {
            let message = "holds an adapter and no model; open its base, and this beside it";
            return Err(Error::argument("file", message));
        }
        let family = Family::named(&metadata.architecture).map_err(|error| error.within("metadata"))?;
        let config = Config::new(metadata.config.clone());
        let (hyper, graphs) = family.build(&config, &|name| file.tensor(name).is_some())?;
        let mut graphs = graphs.without_layers(options.skip)?;
        let odd = graphs.iter().flat_map(Graph::attentions).find(|attention| attention.head_size % 2 != 0);
        if let Some(odd) = odd {
            return Err(Error::unsupported("config (head size)", format!("{} is odd", odd.head_size)));
        }
        let all = options.skip == LayerSet::NONE;
        let placed = adapter.map(|adapter| Placed::new(&mut graphs, &file, adapter, all)).transpose()?;
        let placed = placed.unwrap_or_default();
        let bind = |graph: &Option<Graph>| {
            let bind = |graph| Weights::bind(graph, &file, &placed);
            graph.as_ref().map_or_else(|| Ok(Weights::default()), bind)
        };
        let weights = [bind(&graphs.encoder)?, bind(&graphs.decoder)?];
        let tokenizer = file.tokenizer().map(Tokenizer::open).transpose()?;
        let threads = if options.threads == 0 { thread_pool::worth_using() } else { options.threads };
        let threads = if options.executor == ExecutorKind::Reference { 1 } else { threads.min(MOST_THREADS) };
        let inner = Inner {
            family,
            hyper,
            graphs,
            weights,
            tokenizer,
            kernels: Kernels::for_cpu(Cpu::detect().without(options.without)),
            scalar: Kernels::for_cpu(Cpu::scalar()),
            options: ModelOptions { threads, ..*options },
            engine: None,
            notes: Vec::new(),
            governor: Governor::new(threads),
            adapter: adapter.map(Adapter::identity),
            file,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes a model that `engine` computes. `file` holds no tensors, but what there is of configuration, tokenizer
    /// and chat template.
    pub fn of_engine(file: File, engine: Arc<dyn Engine>, options: &ModelOptions) -> Result<Self> {
        let refusals = [
            (
                options.skip != LayerSet::NONE,
                "layers",
                "it computes the model as it is: none can be left out",
            ),
            (
                options.executor == ExecutorKind::Reference,
                "executor",
                "it computes the model itself: ask for no other",
            ),
            (options.without != Features::NONE, "cpu_features", "it chooses its own: leave out none"),
        ];
        if let Some((_, place, message)) = refusals.into_iter().find(|(is_asked, ..)| *is_asked) {
            return Err(Error::unsupported(place, format!("an engine runs the model; {message}")));
        }
        let mut notes = vec![engine.note()];
        if options.threads > 1 {
            notes.push(format!("computes with one thread, not {}", options.threads));
        }
        let (hyper, graphs) = external_backend::shape(&engine.outline());
        let inner = Inner {
            family: &external_backend::FAMILY,
            hyper,
            graphs,
            weights: <[Weights; 2]>::default(),
            tokenizer: file.tokenizer().map(Tokenizer::open).transpose()?,
            kernels: Kernels::for_cpu(Cpu::scalar()),
            scalar: Kernels::for_cpu(Cpu::scalar()),
            options: ModelOptions { threads: 1, executor: ExecutorKind::Reference, ..*options },
            notes,
            governor: Governor::new(1),
            engine: Some(engine),
            adapter: None,
            file,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What there is to tell people about how the model runs, such as that it is slower than it could be.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// What computes the model, where that is not our graph.
    pub fn engine(&self) -> Option<&Arc<dyn Engine>> {
        self.inner.engine.as_ref()
    }

    /// Computes the outputs of a model that an engine runs, from its inputs.
    pub fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
        let engine = self.inner.engine.as_ref().ok_or_else(|| {
            Error::unsupported("model", "it takes tokens, not tensors by name; use a session or an encoder")
        })?;
        engine.run(inputs)
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.inner.file
    }

    /// What tells the model from others: that of the file, and of the adapter beside it.
    pub fn identity(&self) -> [u8; 32] {
        let identity = self.inner.file.identity();
        match self.inner.adapter {
            None => identity,
            Some(adapter) => *blake3::Hasher::new().update(&identity).update(&adapter).finalize().as_bytes(),
        }
    }

    /// What the file says of the model.
    pub(crate) fn config(&self) -> Config {
        Config::new(self.inner.file.metadata().config.clone())
    }

    /// The name of the model's family.
    pub fn family(&self) -> &'static str {
        self.inner.family.name
    }

    /// The hyper-parameters.
    pub fn hyper(&self) -> &ModelConfig {
        &self.inner.hyper
    }

    /// The computation, as the family wrote it.
    pub fn graphs(&self) -> &Graphs {
        &self.inner.graphs
    }

    /// The tokenizer; an error where the file holds none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.inner.tokenizer.as_ref().ok_or_else(|| {
            let message = "the file holds none, so that the model takes token ids alone and no text; \
                put its tokenizer.json beside its weights, and open or convert them again";
            Error::new(ErrorKind::Missing, "tokenizer", message)
        })
    }

    /// The ids that end a generation; none without a tokenizer.
    pub fn end_ids(&self) -> &[u32] {
        self.inner.tokenizer.as_ref().map_or(&[], Tokenizer::end_ids)
    }

    /// The kernels that compute the model.
    pub(crate) fn kernel_table(&self) -> Kernels {
        self.inner.kernels
    }

    /// How many tokens can be chosen: rows of a padded head that no token stands for are not, nor tokens beyond the head.
    pub(crate) fn choices(&self) -> usize {
        let head = self.hyper().vocabulary;
        let tokens =
            self.inner.tokenizer.as_ref().map(|tokenizer| tokenizer.vocabulary_size().max(1) as usize);
        tokens.map_or(head, |tokens| tokens.min(head))
    }

    /// The chat template, where the file holds one.
    pub fn template(&self) -> Result<Option<ChatTemplate>> {
        self.inner.file.template().map(ChatTemplate::new).transpose()
    }

    /// The layers that are left out.
    pub fn skipped(&self) -> LayerSet {
        self.inner.options.skip
    }

    /// The names of the kernels chosen for this machine.
    pub fn kernels(&self) -> Vec<&'static str> {
        match self.inner.options.executor {
            _ if self.inner.engine.is_some() => vec![external_backend::GENERAL],
            ExecutorKind::Cpu => self.inner.kernels.names().collect(),
            ExecutorKind::Reference => vec!["reference"],
        }
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.inner.options.threads
    }

    /// Holds all that compute with the model to a pace; off unless something is asked of it.
    pub fn governor(&self) -> &Governor {
        &self.inner.governor
    }

    /// The plans of a session with the usual options, in words.
    pub fn plan_text(&self) -> Result<String> {
        let batch = SessionOptions::default().batch;
        let plan = |(graph, weights)| Ok(Plan::build(&pass::all(graph), weights, batch, 1)?.to_string());
        let Graphs { encoder, decoder } = &self.inner.graphs;
        let sides = [encoder, decoder].into_iter().zip(&self.inner.weights);
        sides.filter_map(|(graph, weights)| Some((graph.as_ref()?, weights))).map(plan).collect()
    }

    /// The types of cached numbers: as `asked`, or what suits the model. Exact weights want exact numbers; what passes
    /// is not worth packing.
    pub(crate) fn cache_types(&self, asked: Option<CacheType>) -> CacheTypes {
        let kept = match self.inner.weights.iter().any(Weights::any_full_precision) {
            true => CacheType::F32,
            false => CacheType::F16,
        };
        asked.map_or(CacheTypes { kept, passing: CacheType::F32 }, CacheTypes::all)
    }

    /// An error where keys and values are to have a type, or tokens a window, that the model's engine knows nothing of.
    pub(crate) fn check_engine(&self, cache: Option<CacheType>, window: Option<crate::Window>) -> Result<()> {
        if self.inner.engine.is_none() {
            return Ok(());
        }
        if let Some(asked) = cache.filter(|asked| *asked != CacheType::F32) {
            let message = format!(
                "an engine runs the model and keeps no keys and values as {asked:?}; ask for no type"
            );
            return Err(Error::unsupported("cache", message));
        }
        match window {
            None => Ok(()),
            Some(_) => {
                let message = "an engine runs the model, and its tokens see all before them; ask for none";
                Err(Error::unsupported("window", message))
            }
        }
    }

    /// Memory and threads for `sequences` sequences of up to `context` tokens each.
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

    /// What a session with these options would hold in memory. Nothing of it is reserved.
    pub fn memory(&self, options: &SessionOptions) -> Result<Memory> {
        let sequences = options.forks.saturating_add(1);
        let (arena, cache) =
            Context::cost(&self.inner, &self.context_options(options, sequences, sequences)?)?;
        Ok(Memory { arena, cache, mapped: self.inner.file.bytes().len() })
    }

    fn context_options(
        &self,
        options: &SessionOptions,
        sequences: usize,
        wanted: usize,
    ) -> Result<ContextOptions> {
        self.check_engine(options.cache, options.window)?;
        let model = &self.inner;
        let most = model.hyper.context.max(1);
        if options.context > most {
            return Err(Error::new(
                ErrorKind::TooLong,
                "context",
                format!("{} tokens; the model was made for {most}", options.context),
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
            return Err(Error::argument("window", "a token sees itself: give at least 1"));
        }
        let window = options.window;
        Ok(ContextOptions { cache, window, wanted: wanted.max(1), read: 0, head: true, exits: false })
    }

    /// Memory and threads for reading `rows` tokens at once, of which `outputs` give outputs.
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

    /// Memory and threads for writing many texts, of which `rows` give outputs at once.
    pub(crate) fn writing_context(&self, cache: CacheOptions, rows: usize) -> Result<Context> {
        let options = ContextOptions { cache, window: None, wanted: rows, read: 0, head: true, exits: false };
        Context::new(Arc::clone(&self.inner), options)
    }

    /// Writes texts for texts.
    pub fn writer(&self, options: WriterOptions) -> Result<Writer> {
        Writer::new(self.clone(), options)
    }

    /// Reads whole texts.
    pub fn encoder(&self, options: EncoderOptions) -> Result<Encoder> {
        Encoder::new(self.clone(), options)
    }

    /// A session: one conversation or text.
    pub fn session(&self, options: SessionOptions) -> Result<Session> {
        if self.inner.graphs.decoder.is_none() {
            return Err(Error::unsupported(
                "model",
                "it reads whole texts and does not write; use an encoder",
            ));
        }
        Session::new(self.clone(), options)
    }
}
