//! The memory and the threads in which sequences run: plan, arena, cache, team.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use siskin_kernels::ops::attention::{CacheType, HIDDEN};

use crate::cache::{Cache, CacheOptions};
use crate::engine::History;
use crate::exec::cpu::Workspace;
use crate::exec::{self, Batch, Distances, Row};
use crate::graph::{Graph, pass};
use crate::model::Inner;
use crate::observe::{Observation, Observer};
use crate::plan::{Arena, Plan, Weights};
use crate::team::Team;
use crate::{Error, ErrorKind, ExecutorKind, Result};

/// What a context needs to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextOptions {
    pub cache: CacheOptions,
    /// Rows of one batch of tokens that may give outputs.
    pub wanted: usize,
    /// Rows of one batch of texts that may give outputs.
    pub read: usize,
    /// Whether a text's outputs are what the head makes of its hidden states.
    pub head: bool,
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

/// Which tokens of a text give outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// None: the text is only remembered.
    None,
    /// The first.
    First,
    /// The last.
    Last,
    /// Every one.
    Every,
    /// Those at these positions, in this order; others than the text has are left out.
    At(&'a [usize]),
}

impl<'a> Wanted<'a> {
    /// How many tokens of a text of `count` give outputs.
    pub(crate) fn count(self, count: usize) -> usize {
        self.of(count).count()
    }

    /// The tokens of a text of `count` that give outputs.
    fn of(self, count: usize) -> impl Iterator<Item = usize> + 'a {
        let (range, list): (_, &[usize]) = match self {
            Self::None => (0..0, &[]),
            Self::First => (0..count.min(1), &[]),
            Self::Last => (count.saturating_sub(1)..count, &[]),
            Self::Every => (0..count, &[]),
            Self::At(list) => (0..0, list),
        };
        range.chain(list.iter().copied().filter(move |&position| position < count))
    }
}

/// A text that a sequence reads at once.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Which sequence.
    pub sequence: usize,
    /// All of its tokens.
    pub tokens: &'a [u32],
    /// The segment that each token is in; empty: all in the first.
    pub segments: &'a [u32],
    /// Which tokens give outputs.
    pub wanted: Wanted<'a>,
    /// Where a model reads features instead of tokens: those, frame by frame. There are no tokens then.
    pub features: &'a [f32],
    /// For models whose tokens see only what is near, the positions of those that see all and are seen by all;
    /// empty: the first.
    pub global: &'a [usize],
    /// For models whose tokens look at those beside them, what the last one finds after it where the text was padded;
    /// others pay no heed.
    pub after: Option<u32>,
}

/// What runs one of a model's graphs.
struct Stage {
    /// As the family wrote it, for the reference.
    graph: Graph,
    plan: Plan,
    workspace: Workspace,
    distances: Distances,
}

impl Stage {
    /// For batches of `rows` rows of which `wanted` give outputs, with positions below `reach`.
    fn new(
        graph: Graph,
        weights: &Weights,
        options: &CacheOptions,
        threads: usize,
        (rows, wanted, reach): (usize, usize, usize),
    ) -> Result<(Self, usize)> {
        let plan = Plan::build(&pass::all(&graph), weights, rows, wanted.min(rows))?;
        let attentions: Vec<_> = graph.attentions().collect();
        let (workspace, words) = Workspace::new(attentions.iter().copied(), options, threads, plan.words);
        let distances = Distances::new(attentions.into_iter(), weights, reach);
        Ok((Self { graph, plan, workspace, distances }, words))
    }
}

/// Which of a model's graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Reads texts at once.
    Encoder,
    /// Takes tokens one after the other.
    Decoder,
}

/// Several sequences that share weights, cache and threads, and go through the model in one batch.
///
/// [`Session`](crate::Session) is the comfortable way to run one sequence; a server runs many of these.
pub struct Context {
    model: Arc<Inner>,
    /// The encoder's and the decoder's.
    stages: [Option<Stage>; 2],
    /// The one that ran last.
    side: Side,
    arena: Arena,
    cache: Cache,
    team: Team,
    batch: Batch,
    /// Outputs of what has no arena: the reference executor and engines.
    reference: Vec<Vec<f32>>,
    /// What an engine is told again.
    history: History,
    stop: Arc<AtomicBool>,
    observer: Option<Arc<Mutex<dyn Observer>>>,
}

impl Context {
    pub(crate) fn new(model: Arc<Inner>, options: ContextOptions) -> Result<Self> {
        let threads = model.options.threads;
        let ContextOptions { cache, wanted, read, head } = options;
        let encoder = model.graphs.encoder.as_ref().map(|graph| {
            let graph = if head { graph.clone() } else { graph.without_head() };
            let graph = if cache.batch > 0 { graph } else { graph.without_memory() };
            Stage::new(graph, &model.weights[0], &cache, threads, (cache.text, read, cache.text))
        });
        // Who only reads has no use for it.
        let decoder = model.graphs.decoder.as_ref().filter(|_| cache.batch > 0).map(|graph| {
            let sizes = (cache.batch, wanted, cache.context);
            Stage::new(graph.clone(), &model.weights[1], &cache, threads, sizes)
        });
        let stages = [encoder.transpose()?, decoder.transpose()?];
        let words = stages.iter().flatten().map(|(_, words)| *words).max().unwrap_or(0);
        let words = if model.options.executor == ExecutorKind::Cpu { words } else { 0 };
        let stages = stages.map(|stage| Some(stage?.0));
        let rows = stages.iter().flatten().map(|stage| stage.plan.batch).max().unwrap_or(0);
        let outputs = stages.iter().flatten().map(|stage| stage.plan.wanted).max().unwrap_or(0);
        Ok(Self {
            arena: Arena::new(words)?,
            cache: Cache::new(stages.iter().flatten().flat_map(|stage| stage.graph.attentions()), cache)?,
            team: Team::new(threads)?,
            batch: Batch::with_capacity(rows, outputs),
            reference: Vec::new(),
            history: History::default(),
            stop: Arc::new(AtomicBool::new(false)),
            observer: None,
            side: Side::Decoder,
            stages,
            model,
        })
    }

    fn stage(&self, side: Side) -> Result<&Stage> {
        self.stages[side as usize].as_ref().ok_or_else(|| {
            let message = match side {
                Side::Encoder => "the model reads tokens one after the other; it has no encoder",
                Side::Decoder => "the model reads whole texts; it does not write",
            };
            Error::unsupported("model", message)
        })
    }

    /// The most rows of a batch of tokens, and the most of them whose logits may be wanted; zeros where the model does
    /// not take tokens one after the other.
    pub fn limits(&self) -> (usize, usize) {
        self.stage(Side::Decoder).map_or((0, 0), |stage| (stage.plan.batch, stage.plan.wanted))
    }

    /// The same of a batch of texts.
    pub fn text_limits(&self) -> (usize, usize) {
        self.stage(Side::Encoder).map_or((0, 0), |stage| (stage.plan.batch, stage.plan.wanted))
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
        let fork = self.cache.fork(sequence)?;
        if self.model.engine.is_some() {
            self.history.copy(sequence, fork);
        }
        Ok(fork)
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
        let vectors = self.model.weights.iter().map(Weights::vector_bytes).sum::<usize>();
        (self.arena.bytes() + vectors, self.cache.bytes())
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

    /// Takes tokens of one or more sequences through the model in one batch. [`Context::output`] then has a row
    /// for every token whose logits were wanted, in order. On an error the sequences are as they were.
    pub fn forward(&mut self, pieces: &[Piece<'_>]) -> Result<()> {
        self.batch.clear();
        let outcome = self.extend(pieces).and_then(|()| self.run(Side::Decoder));
        if outcome.is_err() {
            self.take_back();
        }
        self.settle(outcome)
    }

    /// Reads whole texts in one batch, each by a sequence of its own, which forgets what it read before.
    /// [`Context::output`] then has a row for every token that was asked for, in order.
    pub fn read(&mut self, texts: &[Text<'_>]) -> Result<()> {
        self.batch.clear();
        let outcome = self.list(texts).and_then(|()| self.run(Side::Encoder));
        for text in texts {
            self.cache.pass(text.sequence);
            if outcome.is_err() {
                // Never fails: a text of no tokens needs no room.
                let _ = self.cache.read(text.sequence, 0, 0, false);
            }
        }
        if outcome.is_err() {
            self.batch.clear();
        }
        self.settle(outcome)
    }

    /// A stop is taken when it has stopped something, not when something else went wrong.
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Cancelled) {
            self.stop.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn check_batch(&self, side: Side, rows: usize, wanted: usize) -> Result<()> {
        let plan = &self.stage(side)?.plan;
        if rows > plan.batch || wanted > plan.wanted {
            let message = format!(
                "{rows} rows with {wanted} outputs; the context takes {} with {}",
                plan.batch, plan.wanted
            );
            return Err(Error::argument("batch", message));
        }
        Ok(())
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|&&token| token as usize >= self.vocabulary()) {
            Some(token) => {
                let message = format!("token {token} is not below the vocabulary of {}", self.vocabulary());
                Err(Error::argument("tokens", message))
            }
            None => Ok(()),
        }
    }

    /// The rows that a text becomes.
    fn rows_of(&self, text: &Text<'_>) -> Result<usize> {
        match self.stage(Side::Encoder)?.plan.frames_per_row {
            0 if text.features.is_empty() => Ok(text.tokens.len()),
            0 => Err(Error::argument("features", "the model reads tokens")),
            _ if !text.tokens.is_empty() => Err(Error::argument("tokens", "the model reads features")),
            per_row => {
                let columns = self.model.hyper.features.max(1);
                if !text.features.len().is_multiple_of(columns) {
                    let message = format!("{} numbers are no frames of {columns}", text.features.len());
                    return Err(Error::argument("features", message));
                }
                Ok((text.features.len() / columns).div_ceil(per_row))
            }
        }
    }

    /// Makes room in the cache and lists the rows of texts.
    fn list(&mut self, texts: &[Text<'_>]) -> Result<()> {
        let counts = texts.iter().map(|text| self.rows_of(text)).collect::<Result<Vec<_>>>()?;
        let wanted = texts.iter().zip(&counts).map(|(text, count)| text.wanted.count(*count)).sum();
        let beside = self.stage(Side::Encoder)?.graph.looks_beside();
        let after = |text: &Text<'_>| text.after.filter(|_| beside);
        let extra = texts.iter().filter_map(after).count();
        self.check_batch(Side::Encoder, counts.iter().sum::<usize>() + extra, wanted)?;
        for (index, (text, &count)) in texts.iter().zip(&counts).enumerate() {
            self.check_tokens(text.tokens)?;
            self.check_tokens(after(text).as_slice())?;
            if texts[..index].iter().any(|other| other.sequence == text.sequence) {
                return Err(Error::argument("texts", "two are for the same sequence"));
            }
            if !text.segments.is_empty() && text.segments.len() != count {
                let message = format!("{} segments for {count} tokens", text.segments.len());
                return Err(Error::argument("segments", message));
            }
            let segments = self.model.hyper.segments;
            if let Some(segment) = text.segments.iter().find(|&&segment| segment as usize >= segments.max(1))
            {
                let message = format!("segment {segment}; the model knows {segments}");
                return Err(Error::argument("segments", message));
            }
            let most = self.model.hyper.text;
            if count > most {
                let message = format!("{count} rows; the model was made for {most}");
                return Err(Error::new(ErrorKind::TooLong, "text", message));
            }
            let first = self.batch.rows.len();
            let before = self.batch.marked.len();
            let marked = self.mark(text.global, count)?;
            self.cache.read(text.sequence, count, marked, after(text).is_some())?;
            self.batch.wanted.extend(text.wanted.of(count).map(|token| first + token));
            for position in 0..count {
                let at = |list: &[u32]| list.get(position).copied().unwrap_or(0);
                let (token, segment) = (at(text.tokens), at(text.segments));
                let mark = self.batch.marked[before..].binary_search(&(first + position)).ok();
                self.batch.rows.push(Row { sequence: text.sequence, position, token, segment, mark });
            }
            if let Some(token) = after(text) {
                // It has a place behind all that is seen.
                let position = count + marked;
                let row = Row { sequence: text.sequence, position, token, segment: 0, mark: None };
                self.batch.rows.push(row);
            }
            let first = self.batch.frames.len();
            let end = first + text.features.len() / self.model.hyper.features.max(1);
            self.batch.frames.resize(end, (first, end));
            self.batch.row_frames.resize(self.batch.rows.len(), first);
            self.batch.features.extend_from_slice(text.features);
        }
        Ok(())
    }

    /// Marks rows of a text of `count` rows that is listed next, and gives how many.
    fn mark(&mut self, global: &[usize], count: usize) -> Result<usize> {
        if !self.stage(Side::Encoder)?.graph.marks() {
            let message = "every token of the model sees all others; leave it empty";
            return if global.is_empty() { Ok(0) } else { Err(Error::argument("global", message)) };
        }
        if let Some(position) = global.iter().find(|&&position| position >= count) {
            let message = format!("position {position} of a text of {count} tokens");
            return Err(Error::argument("global", message));
        }
        let first = self.batch.rows.len();
        let (hidden, before) = (&mut self.batch.hidden, self.batch.marked.len());
        hidden.resize(first + count, 0.0);
        let global = if global.is_empty() && count > 0 { &[0] } else { global };
        global.iter().for_each(|&position| hidden[first + position] = HIDDEN);
        self.batch.marked.extend((first..first + count).filter(|&row| hidden[row] != 0.0));
        Ok(self.batch.marked.len() - before)
    }

    /// Makes room in the cache and lists the rows.
    fn extend(&mut self, pieces: &[Piece<'_>]) -> Result<()> {
        let rows = pieces.iter().map(|piece| piece.tokens.len()).sum();
        let outputs =
            |piece: &Piece<'_>| if piece.every { piece.tokens.len() } else { piece.tokens.len().min(1) };
        self.check_batch(Side::Decoder, rows, pieces.iter().map(outputs).sum())?;
        let reads = self.stages[Side::Encoder as usize].is_some();
        for piece in pieces {
            self.check_tokens(piece.tokens)?;
            let start = self.cache.length(piece.sequence)?;
            if reads && self.cache.text(piece.sequence)? == 0 {
                let message = "the sequence has read nothing yet; let it read a text first";
                return Err(Error::new(ErrorKind::State, "sequence", message));
            }
            self.cache.extend(piece.sequence, piece.tokens.len())?;
            for (index, &token) in piece.tokens.iter().enumerate() {
                if piece.every || index + 1 == piece.tokens.len() {
                    self.batch.wanted.push(self.batch.rows.len());
                }
                let (sequence, position) = (piece.sequence, start + index);
                self.batch.rows.push(Row { sequence, position, token, segment: 0, mark: None });
            }
        }
        Ok(())
    }

    fn run(&mut self, side: Side) -> Result<()> {
        self.stage(side)?;
        let Some(stage) = &self.stages[side as usize] else { return Ok(()) };
        let (model, weights) = (&*self.model, &self.model.weights[side as usize]);
        self.side = side;
        match model.options.executor {
            _ if let Some(engine) = &model.engine => {
                let what = (side == Side::Encoder, stage.graph.output != stage.graph.hidden);
                self.reference = self.history.run(&**engine, &self.batch, what, &self.stop)?;
            }
            ExecutorKind::Reference => {
                let forward = exec::reference::Forward {
                    graph: &stage.graph,
                    weights,
                    cache: &self.cache,
                    batch: &self.batch,
                    distances: &stage.distances,
                    scalar: &model.scalar,
                    stop: &self.stop,
                };
                self.reference = forward.run()?;
            }
            ExecutorKind::Cpu => {
                let forward = exec::cpu::Forward {
                    plan: &stage.plan,
                    weights,
                    kernels: &model.kernels,
                    arena: &self.arena,
                    workspace: stage.workspace,
                    cache: &self.cache,
                    batch: &self.batch,
                    distances: &stage.distances,
                    stop: &self.stop,
                    observation: self
                        .observer
                        .as_deref()
                        .map(|observer| Observation { observer, graph: &stage.graph }),
                };
                forward.run(&mut self.team)?;
            }
        }
        for row in 0..self.batch.wanted.len() {
            if self.output(row).iter().any(|number| !number.is_finite()) {
                let message = "the model produced numbers that are not finite; verify the file";
                return Err(Error::new(ErrorKind::Numeric, "output", message));
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

    /// Row `row` of what was wanted of the last batch; empty where there is none.
    pub fn output(&self, row: usize) -> &[f32] {
        let Ok(stage) = self.stage(self.side) else { return &[] };
        if row >= self.batch.wanted.len() {
            return &[];
        }
        match self.model.options.executor {
            ExecutorKind::Reference => self.reference.get(row).map_or(&[], Vec::as_slice),
            // SAFETY: the team rests between batches, so nobody writes.
            ExecutorKind::Cpu => unsafe { self.arena.row(stage.plan.output, row) },
        }
    }
}

/// The type of cached numbers that suits a model: exact for exact weights.
pub(crate) fn cache_type(model: &Inner) -> CacheType {
    if model.weights.iter().any(Weights::any_full_precision) { CacheType::F32 } else { CacheType::F16 }
}
