//! The CPU backend as a module: plans, activations in one arena, and the state of batch parallelism.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use siskin_kernels::ops::Kernels;

use super::{BatchParallel, CpuPass, Workspace, scratch_size};
use crate::Result;
use crate::activation_observer::{Observation, Observer};
use crate::backend::{Capabilities, Distances, Executable, ForwardInput, GraphPass, ModelWeights, Module};
use crate::cache::CacheOptions;
use crate::graph::{Graph, Op, pass};
use crate::plan::{Arena, BufferView, Plan, Weights};
use crate::thread_pool::ThreadPool;

/// A model on the CPU.
pub(crate) struct CpuModule {
    weights: Arc<ModelWeights>,
    kernels: Kernels,
    threads: usize,
}

impl CpuModule {
    pub(crate) fn new(weights: Arc<ModelWeights>, kernels: Kernels, threads: usize) -> Self {
        Self { weights, kernels, threads }
    }

    fn plans(&self, passes: &[GraphPass], cache: &CacheOptions) -> Result<(Vec<PlannedPass>, usize)> {
        let mut words = 0;
        let plan = |pass: &GraphPass| {
            let (planned, own) = PlannedPass::new(pass, self.weights.of(pass.side), cache, self.threads)?;
            words = words.max(own);
            Ok(planned)
        };
        let planned = passes.iter().map(plan).collect::<Result<_>>()?;
        Ok((planned, words))
    }
}

impl Module for CpuModule {
    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: true }
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn kernels(&self) -> Vec<&'static str> {
        self.kernels.names().collect()
    }

    fn cost(&self, passes: &[GraphPass], cache: &CacheOptions) -> Result<usize> {
        let (_, words) = self.plans(passes, cache)?;
        Ok(Arena::bytes_of(words).saturating_add(self.weights.vector_bytes()))
    }

    fn executable(&self, passes: Arc<[GraphPass]>, cache: &CacheOptions) -> Result<Box<dyn Executable>> {
        let (planned, words) = self.plans(&passes, cache)?;
        Ok(Box::new(CpuExecutable {
            weights: Arc::clone(&self.weights),
            kernels: self.kernels,
            passes,
            planned,
            arena: Arena::new(words)?,
            outputs: BufferView { offset: 0, stride: 0, columns: 0 },
            observer: None,
        }))
    }
}

/// Returns the plans of passes as text. Not a method of [`Module`], whose methods are part of every program that runs
/// models.
pub(crate) fn plan_text(passes: &[GraphPass], weights: &ModelWeights) -> Result<String> {
    let plan = |pass: &GraphPass| {
        let fused = pass::all(&pass.graph);
        Ok(Plan::build(&fused, weights.of(pass.side), pass.rows, pass.outputs)?.to_string())
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
        pass: &GraphPass,
        weights: &Weights,
        cache: &CacheOptions,
        threads: usize,
    ) -> Result<(Self, usize)> {
        let fused = pass::all(&pass.graph);
        let attentions: Vec<_> = pass.graph.attentions().collect();
        let planned = |rows: usize, threads| {
            let plan = Plan::build(&fused, weights, rows, pass.outputs.min(rows))?;
            let team = (threads, worker_words(&pass.graph, &plan));
            let (workspace, words) = Workspace::new(attentions.iter().copied(), cache, team, plan.words);
            Ok((plan, workspace, words))
        };
        let (plan, workspace, words) = planned(pass.rows, threads)?;
        let batch_parallel = BatchParallel::new(&plan, threads, |rows| planned(rows, 1))?;
        let apart_words = batch_parallel.as_ref().map_or(0, |apart| apart.all_words(plan.wanted));
        let distances = Distances::new(attentions.into_iter(), weights, pass.positions);
        Ok((Self { plan, workspace, batch_parallel, distances }, words.max(apart_words)))
    }
}

/// Returns the scratch words that a worker needs for a graph's recurrences and its plan's matmuls.
fn worker_words(graph: &Graph, plan: &Plan) -> usize {
    let recurrence = |op: &Op| match op {
        Op::LinearAttention(recurrence) => Some(crate::backend::state::scratch_size(recurrence)),
        _ => None,
    };
    let sizes = graph.nodes.iter().filter_map(|node| recurrence(&node.op));
    sizes.max().unwrap_or(0).max(scratch_size(plan))
}

/// The passes of a context on the CPU.
struct CpuExecutable {
    weights: Arc<ModelWeights>,
    kernels: Kernels,
    passes: Arc<[GraphPass]>,
    planned: Vec<PlannedPass>,
    /// The activations of all passes, which do not outlive a pass but for the outputs.
    arena: Arena,
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
            weights: self.weights.of(pass.side),
            kernels: &self.kernels,
            arena: self.arena.room(),
            workspace: planned.workspace,
            apart: planned.batch_parallel.as_ref(),
            cache: input.cache,
            batch: input.batch,
            distances: &planned.distances,
            stop: input.cancel,
            stopped: &AtomicBool::new(false),
            observation: observation.map(|observer| Observation { observer, graph: &pass.graph }),
        };
        self.outputs = forward.run(pool, input.threads)?;
        Ok(())
    }

    fn output(&self, row: usize) -> &[f32] {
        // SAFETY: no worker runs between passes, so nothing writes to the arena.
        unsafe { self.arena.room().row(self.outputs, row) }
    }

    fn memory(&self) -> usize {
        self.arena.bytes() + self.weights.vector_bytes()
    }

    fn observe(&mut self, observer: Arc<Mutex<dyn Observer>>) -> Result<()> {
        self.observer = Some(observer);
        Ok(())
    }
}
