//! The memory and the threads in which sequences run: plan, arena, cache, team.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use siskin_kernels::ops::attention::CacheType;

use crate::cache::{Cache, CacheOptions};
use crate::exec::cpu::Workspace;
use crate::exec::{self, Batch, Row};
use crate::model::Inner;
use crate::observe::{Observation, Observer};
use crate::plan::{Arena, Plan};
use crate::team::Team;
use crate::{Error, ErrorKind, ExecutorKind, Result};

/// What a context needs to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextOptions {
    pub cache: CacheOptions,
    /// Rows of one batch that may give outputs.
    pub wanted: usize,
}

/// Tokens of one sequence that go through the model.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Which sequence.
    pub sequence: usize,
    /// The next tokens of it.
    pub tokens: &'a [u32],
    /// Whether the logits of each token are wanted, or of the last alone.
    pub every: bool,
}

/// Several sequences that share weights, cache and threads, and go through the model in one batch.
///
/// [`Session`](crate::Session) is the comfortable way to run one sequence; a server runs many of these.
pub struct Context {
    model: Arc<Inner>,
    plan: Plan,
    arena: Arena,
    workspace: Workspace,
    cache: Cache,
    team: Team,
    batch: Batch,
    /// Logits of the reference executor, which has no arena.
    reference: Vec<Vec<f32>>,
    stop: Arc<AtomicBool>,
    observer: Option<Arc<Mutex<dyn Observer>>>,
}

impl Context {
    pub(crate) fn new(model: Arc<Inner>, options: ContextOptions) -> Result<Self> {
        let batch = options.cache.batch;
        let plan = Plan::build(&model.planned, &model.weights, batch, options.wanted.min(batch))?;
        let threads = model.options.threads;
        let (workspace, words) = Workspace::new(&model.graph, &options.cache, threads, plan.words);
        let words = if model.options.executor == ExecutorKind::Cpu { words } else { 0 };
        Ok(Self {
            arena: Arena::new(words)?,
            cache: Cache::new(&model.graph, options.cache)?,
            team: Team::new(threads)?,
            batch: Batch::with_capacity(batch, plan.wanted),
            reference: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            observer: None,
            plan,
            workspace,
            model,
        })
    }

    /// The most rows of a batch, and the most of them whose logits may be wanted.
    pub fn limits(&self) -> (usize, usize) {
        (self.plan.batch, self.plan.wanted)
    }

    /// Shows everything that goes into matrices to `observer` from now on. The reference executor shows nothing.
    pub fn observe(&mut self, observer: Arc<Mutex<dyn Observer>>) {
        self.observer = Some(observer);
    }

    /// A new, empty sequence.
    pub fn create(&mut self) -> usize {
        self.cache.create()
    }

    /// A new sequence with all tokens of `sequence`, whose cache it shares until either goes on.
    pub fn fork(&mut self, sequence: usize) -> Result<usize> {
        self.cache.fork(sequence)
    }

    /// Forgets a sequence.
    pub fn remove(&mut self, sequence: usize) {
        self.cache.remove(sequence);
    }

    /// Tokens that a sequence holds.
    pub fn length(&self, sequence: usize) -> Result<usize> {
        self.cache.length(sequence)
    }

    /// Forgets all but the first `length` tokens of a sequence.
    pub fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.cache.truncate(sequence, length)
    }

    /// Bytes of the arena and of the cache.
    pub fn memory(&self) -> (usize, usize) {
        (self.arena.bytes() + self.model.weights.vector_bytes(), self.cache.bytes())
    }

    /// The flag that ends a pass early; see [`StopHandle`](crate::StopHandle).
    pub(crate) fn stop_flag(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Takes another flag that ends a pass early.
    pub(crate) fn listen_to(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    /// The most tokens of a sequence.
    pub(crate) fn most_tokens(&self) -> usize {
        self.cache.options.context
    }

    /// The model's vocabulary.
    pub(crate) fn vocabulary(&self) -> usize {
        self.model.hyper.vocabulary
    }

    /// Takes tokens of one or more sequences through the model in one batch. [`Context::logits`] then has a row
    /// for every token whose logits were wanted, in order. On an error the sequences are as they were.
    pub fn forward(&mut self, pieces: &[Piece<'_>]) -> Result<()> {
        self.batch.clear();
        let outcome = self.extend(pieces).and_then(|()| self.run());
        if let Err(error) = &outcome {
            self.take_back();
            // A stop is taken when it has stopped something, not when something else went wrong.
            if error.kind() == ErrorKind::Cancelled {
                self.stop.store(false, Ordering::Relaxed);
            }
        }
        outcome
    }

    /// Makes room in the cache and lists the rows.
    fn extend(&mut self, pieces: &[Piece<'_>]) -> Result<()> {
        let rows: usize = pieces.iter().map(|piece| piece.tokens.len()).sum();
        let outputs =
            |piece: &Piece<'_>| if piece.every { piece.tokens.len() } else { piece.tokens.len().min(1) };
        let wanted: usize = pieces.iter().map(outputs).sum();
        if rows > self.plan.batch || wanted > self.plan.wanted {
            let (batch, most) = self.limits();
            return Err(Error::argument(
                "batch",
                format!("{rows} rows with {wanted} outputs; the context takes {batch} with {most}"),
            ));
        }
        for piece in pieces {
            if let Some(token) = piece.tokens.iter().find(|&&token| token as usize >= self.vocabulary()) {
                let message = format!("token {token} is not below the vocabulary of {}", self.vocabulary());
                return Err(Error::argument("tokens", message));
            }
            let start = self.cache.length(piece.sequence)?;
            self.cache.extend(piece.sequence, piece.tokens.len())?;
            for (index, &token) in piece.tokens.iter().enumerate() {
                if piece.every || index + 1 == piece.tokens.len() {
                    self.batch.wanted.push(self.batch.rows.len());
                }
                self.batch.rows.push(Row { sequence: piece.sequence, position: start + index, token });
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let model = &*self.model;
        match model.options.executor {
            ExecutorKind::Reference => {
                let forward = exec::reference::Forward {
                    graph: &model.graph,
                    weights: &model.weights,
                    cache: &self.cache,
                    batch: &self.batch,
                    scalar: &model.scalar,
                    stop: &self.stop,
                };
                self.reference = forward.run()?;
            }
            ExecutorKind::Cpu => {
                let forward = exec::cpu::Forward {
                    plan: &self.plan,
                    weights: &model.weights,
                    kernels: &model.kernels,
                    arena: &self.arena,
                    workspace: self.workspace,
                    cache: &self.cache,
                    batch: &self.batch,
                    stop: &self.stop,
                    observation: self
                        .observer
                        .as_deref()
                        .map(|observer| Observation { observer, graph: &model.graph }),
                };
                forward.run(&mut self.team)?;
            }
        }
        for row in 0..self.batch.wanted.len() {
            if self.logits(row).iter().any(|logit| !logit.is_finite()) {
                let message = "the model produced numbers that are not finite; verify the file";
                return Err(Error::new(ErrorKind::Numeric, "logits", message));
            }
        }
        Ok(())
    }

    /// Undoes what the batch's rows added to their sequences.
    fn take_back(&mut self) {
        for index in 0..self.batch.rows.len() {
            let Row { sequence, position, .. } = self.batch.rows[index];
            if self.cache.length(sequence).is_ok_and(|length| length > position) {
                // Never fails: what a sequence just had is still there.
                let _ = self.cache.truncate(sequence, position);
            }
        }
        self.batch.clear();
    }

    /// The logits of wanted row `row` of the last batch; empty where there is none.
    pub fn logits(&self, row: usize) -> &[f32] {
        if row >= self.batch.wanted.len() {
            return &[];
        }
        match self.model.options.executor {
            ExecutorKind::Reference => self.reference.get(row).map_or(&[], Vec::as_slice),
            // SAFETY: the team rests between batches, so nobody writes.
            ExecutorKind::Cpu => unsafe { self.arena.row(self.plan.output, row) },
        }
    }
}

/// The type of cached numbers that suits a model: exact for exact weights.
pub(crate) fn cache_type(model: &Inner) -> CacheType {
    if model.weights.any_full_precision() { CacheType::F32 } else { CacheType::F16 }
}
