//! The CPU backend as a module: plans, activations in one arena, and the state of batch parallelism.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use siskin_kernels::ops::Kernels;

use super::arena::Arena;
use super::observation::Observation;
use super::{BatchParallel, CpuPass, Workspace, scratch_size};
use crate::block_table::CacheOptions;
use crate::kv_storage::{KvStorage, KvStorageLayout};
use crate::observer::Observer;
use crate::plan::{BufferView, Plan};
use crate::thread_pool::ThreadPool;
use crate::{
    Backend, BlockStorage, Capabilities, Distances, Executable, ExecutionLimits, ForwardInput, ForwardPass,
    MemoryUse, ModelWeights, Module, WeightSource, Weights,
};
use siskin_format::Result;
use siskin_graph::op::LinearAttention;
use siskin_graph::{Graph, pass};
use siskin_kernels::ops::attention::CacheType;

/// The CPU: plans on a thread pool.
pub struct CpuBackend {
    /// The kernels that models compute with.
    pub kernels: Kernels,
    /// The number of threads that models compute with.
    pub threads: usize,
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: true, layer_skipping: true, cpu_features: true }
    }

    fn load(&self, source: &WeightSource<'_>) -> Result<Arc<dyn Module>> {
        let weights = Arc::new(ModelWeights::bind(source)?);
        Ok(Arc::new(CpuModule { weights, kernels: self.kernels, threads: self.threads.max(1) }))
    }
}

/// A model on the CPU.
struct CpuModule {
    weights: Arc<ModelWeights>,
    kernels: Kernels,
    threads: usize,
}

impl CpuModule {
    fn plans(&self, limits: &ExecutionLimits) -> Result<(Vec<PlannedPass>, usize)> {
        let mut words = 0;
        let plan = |pass: &ForwardPass| {
            let weights = self.weights.of(pass.part);
            let (planned, pass_words) =
                PlannedPass::new(pass, weights, &limits.block_layout.options, self.threads)?;
            words = words.max(pass_words);
            Ok(planned)
        };
        let planned = limits.passes.iter().map(plan).collect::<Result<_>>()?;
        Ok((planned, words))
    }
}

impl Module for CpuModule {
    fn threads(&self) -> usize {
        self.threads
    }

    fn kernels(&self) -> Vec<&'static str> {
        self.kernels.names().collect()
    }

    fn cache_type(&self) -> CacheType {
        self.weights.cache_type()
    }

    fn block_bytes(&self, limits: &ExecutionLimits) -> Result<Vec<usize>> {
        Ok(KvStorageLayout::new(&limits.passes, &limits.block_layout)?.block_bytes())
    }

    fn memory_requirements(&self, limits: &ExecutionLimits) -> Result<MemoryUse> {
        let (_, words) = self.plans(limits)?;
        let layout = KvStorageLayout::new(&limits.passes, &limits.block_layout)?;
        let activations = Arena::bytes_of(words).saturating_add(self.weights.vector_bytes());
        Ok(MemoryUse { activations, kv_cache: layout.bytes(&limits.block_layout) })
    }

    fn create_executable(&self, limits: &ExecutionLimits) -> Result<Box<dyn Executable>> {
        let (planned, words) = self.plans(limits)?;
        let layout = KvStorageLayout::new(&limits.passes, &limits.block_layout)?;
        Ok(Box::new(CpuExecutable {
            weights: Arc::clone(&self.weights),
            kernels: self.kernels,
            threads: self.threads,
            passes: Arc::clone(&limits.passes),
            planned,
            arena: Arena::new(words)?,
            storage: KvStorage::new(layout, &limits.block_layout)?,
            outputs: BufferView { offset: 0, stride: 0, columns: 0 },
            observer: None,
        }))
    }
}

/// Returns the plans of passes as text. Not a method of [`Module`], whose methods are part of every program that runs
/// models.
pub fn plan_text(passes: &[ForwardPass], source: &WeightSource<'_>) -> Result<String> {
    let weights = ModelWeights::bind(source)?;
    let plan = |pass: &ForwardPass| {
        let fused = pass::all(&pass.graph);
        Ok(Plan::build(&fused, weights.of(pass.part), pass.max_rows, pass.max_output_rows)?.to_string())
    };
    passes.iter().map(plan).collect()
}

/// The plan of a pass.
struct PlannedPass {
    plan: Plan,
    workspace: Workspace,
    /// State for batch parallelism, if the plan supports it.
    batch_parallel: Option<BatchParallel>,
    distances: Distances,
}

impl PlannedPass {
    /// Plans a pass; also returns the words of its arena.
    fn new(
        pass: &ForwardPass,
        weights: &Weights,
        cache: &CacheOptions,
        threads: usize,
    ) -> Result<(Self, usize)> {
        let fused = pass::all(&pass.graph);
        let attentions: Vec<_> = pass.graph.attentions().collect();
        let planned = |rows: usize, threads| {
            let plan = Plan::build(&fused, weights, rows, pass.max_output_rows.min(rows))?;
            let workers = (threads, worker_words(&pass.graph, &plan));
            let (workspace, words) = Workspace::new(attentions.iter().copied(), cache, workers, plan.words);
            Ok((plan, workspace, words))
        };
        let (plan, workspace, words) = planned(pass.max_rows, threads)?;
        let batch_parallel = BatchParallel::new(&plan, threads, |rows| planned(rows, 1))?;
        let apart_words = batch_parallel.as_ref().map_or(0, |apart| apart.all_words(plan.max_rows.outputs));
        let distances = Distances::new(attentions.into_iter(), weights, pass.positions);
        Ok((Self { plan, workspace, batch_parallel, distances }, words.max(apart_words)))
    }
}

/// Returns the scratch words that a worker needs for a graph's linear attention and its plan's matmuls.
fn worker_words(graph: &Graph, plan: &Plan) -> usize {
    let linear_attentions = graph.nodes.iter().filter_map(|node| node.op.downcast_ref::<LinearAttention>());
    let sizes = linear_attentions.map(crate::state::scratch_size);
    sizes.max().unwrap_or(0).max(scratch_size(plan))
}

/// The passes of a context on the CPU.
struct CpuExecutable {
    weights: Arc<ModelWeights>,
    kernels: Kernels,
    /// The number of threads that there is scratch memory for.
    threads: usize,
    passes: Arc<[ForwardPass]>,
    planned: Vec<PlannedPass>,
    /// The activations of all passes, which do not outlive a pass but for the outputs.
    arena: Arena,
    storage: KvStorage,
    /// Where the outputs of the last pass are.
    outputs: BufferView,
    observer: Option<Arc<Mutex<dyn Observer>>>,
}

impl Executable for CpuExecutable {
    fn forward(&mut self, pool: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()> {
        let (pass, planned) = (&self.passes[input.pass], &self.planned[input.pass]);
        let observation = self.observer.as_deref();
        let forward = CpuPass {
            plan: &planned.plan,
            weights: self.weights.of(pass.part),
            kernels: &self.kernels,
            arena: self.arena.room(),
            workspace: planned.workspace,
            apart: planned.batch_parallel.as_ref(),
            cache: self.storage.view(input.block_table),
            batch: input.batch,
            distances: &planned.distances,
            cancel: input.cancel,
            stopped: &AtomicBool::new(false),
            observation: observation.map(|observer| Observation { observer, graph: &pass.graph }),
        };
        self.outputs = forward.run(pool, input.threads.min(self.threads))?;
        Ok(())
    }

    fn output(&self, row: usize) -> &[f32] {
        // SAFETY: no worker runs between passes, so nothing writes to the arena.
        unsafe { self.arena.room().row(self.outputs, row) }
    }

    fn memory(&self) -> MemoryUse {
        let activations = self.arena.bytes() + self.weights.vector_bytes();
        MemoryUse { activations, kv_cache: self.storage.bytes() }
    }

    fn block_storage(&self) -> &dyn BlockStorage {
        &self.storage
    }

    fn block_storage_mut(&mut self) -> &mut dyn BlockStorage {
        &mut self.storage
    }

    fn observe(&mut self, observer: Arc<Mutex<dyn Observer>>) -> Result<()> {
        self.observer = Some(observer);
        Ok(())
    }
}
