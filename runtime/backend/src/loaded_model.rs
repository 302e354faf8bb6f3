//! A model on a device: its graphs, and its weights in a backend's module.

use std::sync::Arc;

use siskin_kernels::ops::Kernels;
use siskin_kernels::{Cpu, CpuFeatures};

use crate::block_table::CacheTypes;
use crate::cpu::{self, CpuBackend};
use crate::external::ExternalModelBackend;
use crate::external_model::{self, ExternalModel};
use crate::governor::Governor;
use crate::reference::ReferenceBackend;
use crate::thread_pool;
use crate::{Backend, Capabilities, ForwardPass, ModelPart, Module, WeightSource};
use siskin_format::file::{File, SectionKind};
use siskin_format::{Error, Result};
use siskin_graph::adapter::{Adapter, AdapterTensors, NamedAdapter};
use siskin_graph::arch::{ConfigReader, Family, Graphs, ModelConfig};
use siskin_graph::pass::layers::LayerSet;
use siskin_graph::{AdapterSlot, Graph, StreamingWindow};
use siskin_kernels::ops::attention::CacheType;

macro_rules! devices {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        /// The choice of a backend, `--device` of the command line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub enum DeviceKind {
            $($(#[$attribute])* $name,)*
        }

        impl DeviceKind {
            /// All choices. The options of the command line and of C are checked against it, and tests of backends
            /// iterate over it.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

devices! {
    /// The fastest device that this build supports: the CPU.
    #[default]
    Auto,
    /// The CPU: plans on a thread pool, with the best kernels for it.
    Cpu,
    /// Reference code on one thread of the CPU, slow: for tests and for `doctor`.
    Reference,
}

/// Options for opening a model.
#[derive(Clone, Copy)]
pub struct ModelOptions {
    /// Compute threads; 0: one for each core that keeps up with the fastest.
    pub threads: usize,
    /// Where the model runs.
    pub device: DeviceKind,
    /// CPU features that must not be used.
    pub disabled_cpu_features: CpuFeatures,
    /// A backend of another crate, which then runs the model instead of [`Self::device`].
    pub backend: Option<&'static (dyn Backend + Sync)>,
    /// Layer skipping (LayerSkip, arXiv:2404.16710): the input of a skipped layer becomes its output. Requires a model
    /// whose layers have the same structure.
    pub skip: LayerSet,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            device: DeviceKind::default(),
            disabled_cpu_features: CpuFeatures::NONE,
            backend: None,
            skip: LayerSet::NONE,
        }
    }
}

/// The adapters that a model is opened with.
#[derive(Clone, Copy, Debug, Default)]
pub enum ModelAdapters<'a> {
    /// None.
    #[default]
    None,
    /// One that applies to everything.
    Applied(&'a Adapter),
    /// Several, of which each sequence of a batch can choose one: those with the slots 1, 2, ….
    PerSequence(&'a [NamedAdapter]),
}

/// An adapter that sequences can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedAdapter {
    /// The name.
    pub name: String,
    /// [`Adapter::identity`].
    pub identity: [u8; 32],
}

impl LoadedAdapter {
    fn new(NamedAdapter { name, adapter }: &NamedAdapter) -> Self {
        Self { name: name.clone(), identity: adapter.identity() }
    }
}

/// The maximum number of threads in a thread pool.
const MAX_THREADS: usize = 256;

/// A model on a device, shared by all contexts.
pub struct LoadedModel {
    /// The mapped file.
    pub file: File,
    /// The family that built the graphs.
    pub family: &'static Family,
    /// The hyperparameters.
    pub config: ModelConfig,
    /// The graphs as the family built them, without skipped layers.
    pub graphs: Graphs,
    /// The name of the backend, such as `cpu`.
    pub device: &'static str,
    /// What the backend supports.
    pub capabilities: Capabilities,
    /// What runs the graphs.
    pub module: Arc<dyn Module>,
    /// Kernels for work outside of passes, such as the probabilities of a beam search.
    pub kernels: Kernels,
    /// The skipped layers.
    pub skip: LayerSet,
    /// The external model that is computed instead of the graphs.
    pub external: Option<Arc<dyn ExternalModel>>,
    /// Notes for the user about how the model runs.
    pub notes: Vec<String>,
    /// Throttles everything that computes with this model; off by default.
    pub governor: Governor,
    /// The tensors of all adapters.
    adapter_tensors: AdapterTensors,
    /// The identity of the adapter that applies to everything.
    applied_adapter: Option<[u8; 32]>,
    /// The adapters that sequences can choose.
    adapters: Vec<LoadedAdapter>,
}

impl<'a> ModelAdapters<'a> {
    /// Returns the one that applies to everything, and those that sequences can choose.
    fn split(self) -> (Option<&'a Adapter>, &'a [NamedAdapter]) {
        match self {
            Self::None => (None, &[]),
            Self::Applied(adapter) => (Some(adapter), &[]),
            Self::PerSequence(list) => (None, list),
        }
    }
}

impl LoadedModel {
    /// Builds the graphs of a file and binds its weights, without reading them.
    pub fn new(file: File, adapters: ModelAdapters<'_>, options: &ModelOptions) -> Result<Self> {
        let metadata = file.metadata();
        if metadata.architecture == external_model::GENERAL {
            let message = "this file is a placeholder for a model in another format; open that model";
            return Err(Error::unsupported("metadata.architecture", message));
        }
        if metadata.config.is_empty() && file.section(SectionKind::Adapter).is_some() {
            let message = "this is an adapter without a model; open its base model with this adapter";
            return Err(Error::argument("file", message));
        }
        let family = Family::named(&metadata.architecture).map_err(|error| error.within("metadata"))?;
        let reader = ConfigReader::new(metadata.config.clone());
        let (config, graphs) = family.build(&reader, &|name| file.tensor(name).is_some())?;
        let mut graphs = graphs.without_layers(options.skip)?;
        let odd = graphs.iter().flat_map(Graph::attentions).find(|attention| attention.head_size % 2 != 0);
        if let Some(odd) = odd {
            return Err(Error::unsupported("config (head size)", format!("{} is odd", odd.head_size)));
        }
        let all = options.skip == LayerSet::NONE;
        let adapter_tensors = match adapters {
            ModelAdapters::None => AdapterTensors::default(),
            ModelAdapters::Applied(adapter) => AdapterTensors::new(&mut graphs, &file, adapter, all)?,
            ModelAdapters::PerSequence(list) => AdapterTensors::per_row(&mut graphs, &file, list, all)?,
        };
        let (applied, choices) = adapters.split();
        let kernels = Kernels::for_cpu(Cpu::detect().without(options.disabled_cpu_features));
        let cpu;
        let backend: &dyn Backend = match (options.backend, options.device) {
            (Some(backend), _) => backend,
            (None, DeviceKind::Reference) => &ReferenceBackend,
            (None, DeviceKind::Auto | DeviceKind::Cpu) => {
                let threads = if options.threads == 0 { thread_pool::worth_using() } else { options.threads };
                cpu = CpuBackend { kernels, threads: threads.min(MAX_THREADS) };
                &cpu
            }
        };
        let module =
            backend.load(&WeightSource { graphs: &graphs, file: &file, adapter: &adapter_tensors })?;
        Ok(Self {
            family,
            config,
            graphs,
            governor: Governor::new(module.threads()),
            device: backend.name(),
            capabilities: backend.capabilities(),
            module,
            kernels,
            skip: options.skip,
            external: None,
            notes: Vec::new(),
            adapter_tensors,
            applied_adapter: applied.map(Adapter::identity),
            adapters: choices.iter().map(LoadedAdapter::new).collect(),
            file,
        })
    }

    /// Wraps an external model. `file` holds no tensors.
    pub fn external(file: File, external: Arc<dyn ExternalModel>, options: &ModelOptions) -> Result<Self> {
        let backend = ExternalModelBackend { model: Arc::clone(&external) };
        let can = backend.capabilities();
        let is_other_device = match options.device {
            DeviceKind::Auto | DeviceKind::Cpu => false,
            DeviceKind::Reference => true,
        };
        let rejections = [
            (options.skip != LayerSet::NONE && !can.layer_skipping, "skip_layers", "it cannot skip layers"),
            (is_other_device, "device", "leave out the device"),
            (
                options.disabled_cpu_features != CpuFeatures::NONE && !can.cpu_features,
                "cpu_features",
                "leave out the CPU features",
            ),
        ];
        if let Some((_, place, message)) = rejections.into_iter().find(|(is_rejected, ..)| *is_rejected) {
            let message = format!("the model runs on an external backend; {message}");
            return Err(Error::unsupported(place, message));
        }
        let (config, graphs) = external_model::shape(&external.interface());
        let adapter = AdapterTensors::default();
        let module = backend.load(&WeightSource { graphs: &graphs, file: &file, adapter: &adapter })?;
        let mut notes = vec![external.note()];
        if options.threads > module.threads() {
            notes.push(format!("computes with one thread, not {}", options.threads));
        }
        Ok(Self {
            family: &external_model::FAMILY,
            config,
            graphs,
            governor: Governor::new(module.threads()),
            device: backend.name(),
            capabilities: backend.capabilities(),
            module,
            kernels: Kernels::for_cpu(Cpu::detect()),
            skip: options.skip,
            notes,
            external: Some(external),
            adapter_tensors: adapter,
            applied_adapter: None,
            adapters: Vec::new(),
            file,
        })
    }

    /// Returns the adapters that sequences can choose, those with the slots 1, 2, ….
    pub fn adapters(&self) -> &[LoadedAdapter] {
        &self.adapters
    }

    /// Returns the slot of the adapter with this name; the model's own for `None`.
    ///
    /// # Errors
    /// If sequences cannot choose an adapter with this name.
    pub fn adapter_slot(&self, name: Option<&str>) -> Result<AdapterSlot> {
        let Some(name) = name else { return Ok(AdapterSlot::MODEL) };
        let slots = (1..).map(AdapterSlot).zip(&self.adapters);
        slots.into_iter().find(|(_, adapter)| adapter.name == name).map(|(slot, _)| slot).ok_or_else(|| {
            let names: Vec<&str> = self.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
            let choices = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Error::argument("adapter", format!("no adapter {name:?}; the model was opened with {choices}"))
        })
    }

    /// Returns the identity of the adapter in a slot, if there is one.
    pub fn adapter_identity(&self, slot: AdapterSlot) -> Option<&[u8; 32]> {
        match usize::from(slot.0).checked_sub(1) {
            None => self.applied_adapter.as_ref(),
            Some(index) => self.adapters.get(index).map(|adapter| &adapter.identity),
        }
    }

    /// Returns the plans of the CPU for batches of `rows` rows, as text.
    pub fn plan_text(&self, rows: usize) -> Result<String> {
        let pass = |graph: &Option<Graph>, part| {
            let graph = graph.clone()?;
            Some(ForwardPass { graph, part, max_rows: rows, max_output_rows: 1, positions: rows })
        };
        let Graphs { encoder, decoder } = &self.graphs;
        let passes = [pass(encoder, ModelPart::Encoder), pass(decoder, ModelPart::Decoder)];
        let passes: Vec<ForwardPass> = passes.into_iter().flatten().collect();
        let adapter = &self.adapter_tensors;
        cpu::plan_text(&passes, &WeightSource { graphs: &self.graphs, file: &self.file, adapter })
    }

    /// Returns the element types of the KV cache: `asked`, or the default for this model. Transient keys and values,
    /// which are dropped after their layer, stay f32: packing them does not pay off.
    pub fn cache_types(&self, asked: Option<CacheType>) -> CacheTypes {
        let usual = CacheTypes { persistent: self.module.cache_type(), transient: CacheType::F32 };
        asked.map_or(usual, CacheTypes::all)
    }

    /// Returns an error if the options set a KV cache type or a sliding window that the backend does not support.
    pub fn check_cache(&self, cache: Option<CacheType>, window: Option<StreamingWindow>) -> Result<()> {
        if self.capabilities.kv_cache {
            return Ok(());
        }
        if cache.is_some_and(|cache| cache != CacheType::F32) {
            let message =
                format!("the {} backend has no KV cache; do not set the KV cache type", self.device);
            return Err(Error::unsupported("cache", message));
        }
        match window {
            None => Ok(()),
            Some(_) => {
                let message = format!(
                    "the {} backend has no KV cache and no sliding window; do not set one",
                    self.device
                );
                Err(Error::unsupported("window", message))
            }
        }
    }
}
