//! The memory and threads in which sequences run: plan, arena, KV cache, thread pool. `texts.rs` encodes whole
//! sequences.

mod early_exit;
mod texts;

pub use texts::{OutputRows, SequenceInput};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::activation_observer::{Observation, Observer};
use crate::cache::{CacheOptions, CacheShape, KvCache, Saved};
use crate::exec::cpu::{SequenceParallel, Workspace};
use crate::exec::{self, Batch, Distances, TokenRow};
use crate::external_backend::SequenceHistory;
use crate::graph::{Attention, Graph, pass};
use crate::model::Inner;
use crate::plan::{Arena, BufferView, Plan, Weights};
use crate::session::Window;
use crate::thread_pool::ThreadPool;
use crate::{Error, ErrorKind, ExecutorKind, Result};

/// Options for creating a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextOptions {
    pub cache: CacheOptions,
    /// Limits how many tokens a query attends to.
    pub window: Option<Window>,
    /// The maximum number of output rows per decoder batch.
    pub wanted: usize,
    /// The maximum number of output rows per encoder batch.
    pub read: usize,
    /// Whether the encoder's outputs are those of the head, or else the hidden states.
    pub head: bool,
    /// Whether early exit is enabled.
    pub exits: bool,
}

/// Tokens of one sequence in a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct BatchEntry<'a> {
    /// The sequence.
    pub sequence: usize,
    /// Its next tokens.
    pub tokens: &'a [u32],
    /// Whether to compute logits for every token, or only for the last one.
    pub all_logits: bool,
}

/// One of a model's graphs with the plan that runs it.
struct Stage {
    /// The graph as the family built it, for the reference backend.
    graph: Graph,
    plan: Plan,
    workspace: Workspace,
    /// State for sequence parallelism, if the plan supports it.
    apart: Option<SequenceParallel>,
    distances: Distances,
    /// Whether the graph reads the caller's global-attention marks.
    marks: bool,
    /// True if the graph contains a convolution over token positions.
    has_convolution: bool,
}

impl Stage {
    /// Builds a stage for batches of up to `rows` rows with up to `wanted` output rows, at positions below `reach`.
    fn new(
        graph: Graph,
        weights: &Weights,
        options: &CacheOptions,
        threads: usize,
        (rows, wanted, reach): (usize, usize, usize),
    ) -> Result<(Self, usize)> {
        let fused = pass::all(&graph);
        let attentions: Vec<_> = graph.attentions().collect();
        let planned = |rows: usize, threads| {
            let plan = Plan::build(&fused, weights, rows, wanted.min(rows))?;
            let team = (threads, exec::scratch_size(&graph, &plan));
            let (workspace, words) = Workspace::new(attentions.iter().copied(), options, team, plan.words);
            Ok((plan, workspace, words))
        };
        let (plan, workspace, words) = planned(rows, threads)?;
        let apart = SequenceParallel::new(&plan, threads, |rows| planned(rows, 1))?;
        let words = apart.as_ref().map_or(0, |apart| apart.all_words(plan.wanted)).max(words);
        let distances = Distances::new(attentions.into_iter(), weights, reach);
        let (marks, has_convolution) = (graph.marks(), graph.has_convolution());
        Ok((Self { graph, plan, workspace, apart, distances, marks, has_convolution }, words))
    }
}

/// Selects one of a model's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The encoder, which takes a whole sequence at once.
    Encoder,
    /// The decoder, which takes tokens step by step.
    Decoder,
    /// A section of the encoder between two exits.
    Body(usize),
    /// The head of a section of the encoder.
    Head(usize),
}

/// Several sequences that share weights, KV cache and threads, and run in one batch.
///
/// [`Session`](crate::Session) is the convenient API for one sequence; a server runs many sequences in one context.
pub struct Context {
    model: Arc<Inner>,
    /// Encoder and decoder.
    stages: [Option<Stage>; 2],
    /// The encoder split at its exits, if early exit is enabled.
    parts: Vec<early_exit::ExitSegment>,
    /// Where the outputs of the last batch are in the arena.
    outputs: BufferView,
    arena: Arena,
    cache: KvCache,
    team: ThreadPool,
    batch: Batch,
    /// Outputs of backends without an arena: the reference and external backends.
    reference: Vec<Vec<f32>>,
    /// Tokens of each sequence, which a stateless external backend needs again for every pass.
    history: SequenceHistory,
    cancel_flag: Arc<AtomicBool>,
    observer: Option<Arc<Mutex<dyn Observer>>>,
}

/// The plans of a context, and the size in words of the arena that they share.
struct Stages {
    both: [Option<Stage>; 2],
    parts: Vec<early_exit::ExitSegment>,
    words: usize,
}

impl Stages {
    fn new(model: &Inner, options: &ContextOptions) -> Result<Self> {
        let threads = model.options.threads;
        let ContextOptions { cache, window, wanted, read, head, exits } = *options;
        let encoder = model.graphs.encoder.as_ref().map(|graph| {
            let graph = if head { graph.clone() } else { graph.without_head() };
            let graph = if cache.batch > 0 { graph } else { graph.without_cross_attention() };
            Stage::new(graph, &model.weights[0], &cache, threads, (cache.text, read, cache.text))
        });
        // An encoder-only context does not need the decoder.
        let decoder = model.graphs.decoder.as_ref().filter(|_| cache.batch > 0).map(|graph| {
            let sizes = (cache.batch, wanted, cache.context);
            let graph =
                window.map_or_else(|| graph.clone(), |window| graph.within(window.recent, window.first));
            Stage::new(graph, &model.weights[1], &cache, threads, sizes)
        });
        let both = [encoder.transpose()?, decoder.transpose()?];
        let (parts, part_words) = match &model.graphs.encoder {
            Some(graph) if exits => {
                let sizes = (model.hyper.layers, read);
                early_exit::ExitSegment::all(graph, &model.weights[0], &cache, threads, sizes)?
            }
            _ => (Vec::new(), 0),
        };
        let words = both.iter().flatten().map(|(_, words)| *words).fold(part_words, usize::max);
        let words = if model.options.executor == ExecutorKind::Cpu { words } else { 0 };
        Ok(Self { both: both.map(|stage| Some(stage?.0)), parts, words })
    }

    fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.both.iter().flatten().flat_map(|stage| stage.graph.attentions())
    }

    /// Returns the recurrent states of all graphs, each with its size in words.
    fn states(&self) -> impl Iterator<Item = (usize, usize)> {
        self.both.iter().flatten().flat_map(|stage| stage.graph.states())
    }
}

impl Context {
    pub(crate) fn new(model: Arc<Inner>, options: ContextOptions) -> Result<Self> {
        let stages = Stages::new(&model, &options)?;
        let rows = stages.both.iter().flatten().map(|stage| stage.plan.batch).max().unwrap_or(0);
        let outputs = stages.both.iter().flatten().map(|stage| stage.plan.wanted).max().unwrap_or(0);
        Ok(Self {
            arena: Arena::new(stages.words)?,
            cache: KvCache::new(stages.attentions(), stages.states(), options.cache)?,
            team: ThreadPool::new(model.options.threads)?,
            batch: Batch::with_capacity(rows, outputs),
            reference: Vec::new(),
            history: SequenceHistory::default(),
            cancel_flag: Arc::new(AtomicBool::new(false)),
            observer: None,
            outputs: BufferView { offset: 0, stride: 0, columns: 0 },
            stages: stages.both,
            parts: stages.parts,
            model,
        })
    }

    /// Returns the bytes of the arena and of the KV cache that a context with these options would use.
    pub(crate) fn cost(model: &Inner, options: &ContextOptions) -> Result<(usize, usize)> {
        let stages = Stages::new(model, options)?;
        let cache = CacheShape::new(stages.attentions(), stages.states(), &options.cache)?;
        Ok((Arena::bytes_of(stages.words).saturating_add(vector_bytes(model)), cache.bytes()))
    }

    fn stage(&self, side: Side) -> Result<&Stage> {
        stage_of(&self.stages, &self.parts, side).ok_or_else(|| {
            let message = match side {
                Side::Encoder => "the model is decoder-only and has no encoder",
                Side::Decoder => "the model is encoder-only and cannot generate text",
                Side::Body(_) | Side::Head(_) => "the encoder was not split for early exit",
            };
            Error::unsupported("model", message)
        })
    }

    /// Returns the maximum number of rows in a decoder batch, and the maximum number of them that can have logits;
    /// zeros if the model has no decoder.
    pub fn limits(&self) -> (usize, usize) {
        self.stage(Side::Decoder).map_or((0, 0), |stage| (stage.plan.batch, stage.plan.wanted))
    }

    /// Returns the same limits for an encoder batch.
    pub fn text_limits(&self) -> (usize, usize) {
        self.stage(Side::Encoder).map_or((0, 0), |stage| (stage.plan.batch, stage.plan.wanted))
    }

    /// Passes the inputs of all matmuls to `observer` from now on. The reference backend does not call it.
    pub fn observe(&mut self, observer: Arc<Mutex<dyn Observer>>) {
        self.observer = Some(observer);
    }

    /// Creates an empty sequence.
    pub fn create(&mut self) -> usize {
        self.cache.create()
    }

    /// Forks `sequence`: the new sequence shares its KV cache blocks until either is extended (copy on write).
    pub fn fork(&mut self, sequence: usize) -> Result<usize> {
        let fork = self.cache.fork(sequence)?;
        if self.model.engine.is_some() {
            self.history.copy(sequence, fork);
        }
        Ok(fork)
    }

    /// Removes a sequence.
    pub fn remove(&mut self, sequence: usize) {
        self.cache.remove(sequence);
    }

    /// Returns the number of tokens in a sequence.
    pub fn length(&self, sequence: usize) -> Result<usize> {
        self.cache.length(sequence)
    }

    /// Drops all but the first `length` tokens of a sequence.
    pub fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.cache.truncate(sequence, length)
    }

    /// Appends the state of a sequence to `out`; returns its prefix length (tokens that attend to each other
    /// bidirectionally) and its expected length.
    pub(crate) fn save(&self, sequence: usize, out: &mut Vec<u8>) -> Result<(usize, usize)> {
        if self.model.engine.is_some() {
            return Err(Error::unsupported("session", "models of an external backend have no state to save"));
        }
        self.cache.save(sequence, out)
    }

    /// Restores a saved state into `sequence`. On an error the sequence is unchanged, or empty if forks have taken its
    /// blocks.
    pub(crate) fn restore(&mut self, sequence: usize, saved: &Saved<'_>) -> Result<usize> {
        self.cache.check(saved)?;
        self.cache.remove(sequence);
        self.cache.restore(saved)
    }

    /// Releases unused memory to the operating system, which provides it again on demand.
    pub fn trim(&mut self) {
        self.cache.trim();
    }

    /// Returns the bytes of the arena and of the KV cache.
    pub fn memory(&self) -> (usize, usize) {
        (self.arena.bytes() + vector_bytes(&self.model), self.cache.bytes())
    }

    /// Returns the flag that cancels a pass; see [`CancelHandle`](crate::CancelHandle).
    pub(crate) fn cancel_flag(&self) -> &Arc<AtomicBool> {
        &self.cancel_flag
    }

    /// Replaces the flag that cancels a pass.
    pub(crate) fn set_cancel_flag(&mut self, cancel_flag: &Arc<AtomicBool>) {
        self.cancel_flag = Arc::clone(cancel_flag);
    }

    /// Returns the maximum length of a sequence in tokens.
    pub(crate) fn most_tokens(&self) -> usize {
        self.cache.options.context
    }

    /// Returns the vocabulary size.
    pub(crate) fn vocabulary(&self) -> usize {
        self.model.hyper.vocabulary
    }

    /// Runs a forward pass over tokens of one or more sequences in one batch. [`Context::output`] then has one row for
    /// each token whose logits were requested, in order. On an error the sequences are unchanged, except that blocks which
    /// left a sliding window stay dropped.
    pub fn forward(&mut self, pieces: &[BatchEntry<'_>]) -> Result<()> {
        self.batch.clear();
        let outcome = self.extend(pieces).and_then(|()| self.run(Side::Decoder));
        if outcome.is_err() {
            self.take_back();
        } else {
            self.batch.sequences.iter().for_each(|&sequence| self.cache.settle(sequence));
        }
        self.settle(outcome)
    }

    /// Declares that the following batches bring a sequence to `length` tokens. Models whose RoPE frequencies depend on
    /// the sequence length use those of `length` for all of these tokens; ignored by other models.
    pub fn reserve_positions(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.cache.expect(sequence, length)
    }

    /// Makes the first `count` tokens of an empty sequence attend to each other bidirectionally (prefix LM). They must
    /// be passed in one batch.
    pub fn set_prefix(&mut self, sequence: usize, count: usize) -> Result<()> {
        self.cache.set_prefix(sequence, count)
    }

    /// Returns the length from which on RoPE frequencies change with the length of the sequence.
    pub(crate) fn stretches(&self) -> Option<usize> {
        self.stage(Side::Decoder).ok().and_then(|stage| stage.graph.stretches())
    }

    /// Returns the length beyond which all positions of a sequence use different RoPE frequencies.
    pub(crate) fn switches(&self) -> Option<usize> {
        self.stage(Side::Decoder).ok().and_then(|stage| stage.graph.switches())
    }

    /// Resets the cancel flag only if it was what ended the pass, not on another error.
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Cancelled) {
            self.cancel_flag.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn check_batch(&self, side: Side, rows: usize, wanted: usize) -> Result<()> {
        let plan = &self.stage(side)?.plan;
        if rows > plan.batch || wanted > plan.wanted {
            let message = format!(
                "{rows} rows with {wanted} outputs; the context allows {} with {}",
                plan.batch, plan.wanted
            );
            return Err(Error::argument("batch", message));
        }
        Ok(())
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|&&token| token as usize >= self.vocabulary()) {
            Some(token) => {
                let message =
                    format!("token {token} is out of range for a vocabulary of {} tokens", self.vocabulary());
                Err(Error::argument("tokens", message))
            }
            None => Ok(()),
        }
    }

    /// Reserves KV cache blocks and lists the rows of the batch.
    fn extend(&mut self, pieces: &[BatchEntry<'_>]) -> Result<()> {
        let rows = pieces.iter().map(|piece| piece.tokens.len()).sum();
        let outputs = |piece: &BatchEntry<'_>| {
            if piece.all_logits { piece.tokens.len() } else { piece.tokens.len().min(1) }
        };
        self.check_batch(Side::Decoder, rows, pieces.iter().map(outputs).sum())?;
        let reads = self.stages[0].is_some();
        for piece in pieces {
            self.check_tokens(piece.tokens)?;
            let start = self.cache.length(piece.sequence)?;
            if reads && self.cache.text(piece.sequence)? == 0 {
                let message = "has no encoded input; encode a text first";
                return Err(Error::new(ErrorKind::State, "sequence", message));
            }
            self.cache.extend(piece.sequence, piece.tokens.len())?;
            let expected = self.cache.expected(piece.sequence);
            for (index, &token) in piece.tokens.iter().enumerate() {
                if piece.all_logits || index + 1 == piece.tokens.len() {
                    self.batch.wanted.push(self.batch.rows.len());
                }
                let (sequence, position) = (piece.sequence, start + index);
                let length = expected.max(position + 1);
                self.batch.push(TokenRow { sequence, position, token, segment: 0, mark: None, length });
            }
        }
        Ok(())
    }

    /// Runs the batch once the model's governor allows it.
    fn run(&mut self, side: Side) -> Result<()> {
        let pass = self.model.governor.begin(self.model.options.threads, &self.cancel_flag);
        let outcome = self.compute(side, pass.threads);
        self.model.governor.end(pass, outcome.is_ok() && side == Side::Decoder && self.batch.writes());
        outcome
    }

    fn compute(&mut self, side: Side, threads: usize) -> Result<()> {
        self.stage(side)?;
        let Some(stage) = stage_of(&self.stages, &self.parts, side) else { return Ok(()) };
        let (model, weights) = (&*self.model, &self.model.weights[usize::from(side == Side::Decoder)]);
        match model.options.executor {
            _ if let Some(engine) = &model.engine => {
                let what = (side == Side::Encoder, stage.graph.output != stage.graph.hidden);
                self.reference = self.history.run(&**engine, &self.batch, what, &self.cancel_flag)?;
            }
            ExecutorKind::Reference => {
                let forward = exec::reference::ReferencePass {
                    graph: &stage.graph,
                    weights,
                    cache: &self.cache,
                    batch: &self.batch,
                    distances: &stage.distances,
                    scalar: &model.scalar,
                    stop: &self.cancel_flag,
                };
                self.reference = forward.run()?;
            }
            ExecutorKind::Cpu => {
                let forward = exec::cpu::CpuPass {
                    plan: &stage.plan,
                    weights,
                    kernels: &model.kernels,
                    arena: self.arena.room(),
                    workspace: stage.workspace,
                    apart: stage.apart.as_ref(),
                    cache: &self.cache,
                    batch: &self.batch,
                    distances: &stage.distances,
                    stop: &self.cancel_flag,
                    stopped: &AtomicBool::new(false),
                    observation: self
                        .observer
                        .as_deref()
                        .map(|observer| Observation { observer, graph: &stage.graph }),
                };
                self.outputs = forward.run(&mut self.team, threads)?;
            }
        }
        for row in 0..self.batch.wanted.len() {
            Error::unless_finite("output", self.output(row))?;
        }
        Ok(())
    }

    /// Rolls back what the batch's rows added to their sequences.
    fn take_back(&mut self) {
        for index in 0..self.batch.rows.len() {
            let TokenRow { sequence, position, .. } = self.batch.rows[index];
            if self.cache.length(sequence).is_ok_and(|length| length > position) {
                // Never fails: the tokens of this length are still in the cache.
                let _ = self.cache.truncate(sequence, position);
            }
        }
        self.batch.clear();
    }

    /// Returns output row `row` of the last batch; empty if there is none.
    pub fn output(&self, row: usize) -> &[f32] {
        if row >= self.batch.wanted.len() {
            return &[];
        }
        match self.model.options.executor {
            ExecutorKind::Reference => self.reference.get(row).map_or(&[], Vec::as_slice),
            // SAFETY: no worker runs between batches, so nothing writes to the arena.
            ExecutorKind::Cpu => unsafe { self.arena.room().row(self.outputs, row) },
        }
    }
}

/// Returns the bytes of the vector weights (norms, biases), which are copied out of the file.
fn vector_bytes(model: &Inner) -> usize {
    model.weights.iter().map(Weights::vector_bytes).sum()
}

/// Returns the stage of a side, if there is one.
fn stage_of<'a>(
    stages: &'a [Option<Stage>; 2],
    parts: &'a [early_exit::ExitSegment],
    side: Side,
) -> Option<&'a Stage> {
    match side {
        Side::Encoder => stages[0].as_ref(),
        Side::Decoder => stages[1].as_ref(),
        Side::Body(number) => parts.get(number).and_then(early_exit::ExitSegment::body),
        Side::Head(number) => parts.get(number).map(early_exit::ExitSegment::head),
    }
}
