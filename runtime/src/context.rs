//! Sequences that run in batches: validation, the KV cache and the executable of a backend. `texts.rs` encodes whole
//! sequences.

mod early_exit;
mod passes;
mod texts;

pub use texts::{OutputRows, SequenceInput};

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::activation_observer::Observer;
use crate::backend::{Batch, Executable, ForwardInput, GraphPass, GraphSide, TokenRow};
use crate::cache::{CacheOptions, CacheShape, KvCache, Saved};
use crate::model::Inner;
use crate::session::Window;
use crate::thread_pool::ThreadPool;
use crate::{Error, ErrorKind, Result};
use passes::Passes;

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

/// Several sequences that share weights, KV cache and threads, and run in one batch.
///
/// [`Session`](crate::Session) is the convenient API for one sequence; a server runs many sequences in one context.
pub struct Context {
    model: Arc<Inner>,
    passes: Passes,
    executable: Box<dyn Executable>,
    cache: KvCache,
    pool: ThreadPool,
    batch: Batch,
    cancel_flag: Arc<AtomicBool>,
}

impl Context {
    pub(crate) fn new(model: Arc<Inner>, options: ContextOptions) -> Result<Self> {
        let passes = Passes::new(&model, &options)?;
        let most = |size: &dyn Fn(&GraphPass) -> usize| passes.whole().map(size).max().unwrap_or(0);
        Ok(Self {
            executable: model.module.executable(Arc::clone(&passes.list), &options.cache)?,
            cache: KvCache::new(passes.attentions(), passes.states(), options.cache)?,
            pool: ThreadPool::new(model.module.threads())?,
            batch: Batch::with_capacity(most(&|pass| pass.rows), most(&|pass| pass.outputs)),
            cancel_flag: Arc::new(AtomicBool::new(false)),
            passes,
            model,
        })
    }

    /// Returns the bytes of activations and of the KV cache that a context with these options would use.
    pub(crate) fn cost(model: &Inner, options: &ContextOptions) -> Result<(usize, usize)> {
        let passes = Passes::new(model, options)?;
        let cache = CacheShape::new(passes.attentions(), passes.states(), &options.cache)?;
        Ok((model.module.cost(&passes.list, &options.cache)?, cache.bytes()))
    }

    /// Returns the number of the pass of a whole side.
    fn pass(&self, side: GraphSide) -> Result<usize> {
        self.passes.number(side).ok_or_else(|| {
            let message = match side {
                GraphSide::Encoder => "the model is decoder-only and has no encoder",
                GraphSide::Decoder => "the model is encoder-only and cannot generate text",
            };
            Error::unsupported("model", message)
        })
    }

    fn graph_pass(&self, side: GraphSide) -> Result<&GraphPass> {
        Ok(&self.passes.list[self.pass(side)?])
    }

    /// Returns the maximum number of rows in a decoder batch, and the maximum number of them that can have logits;
    /// zeros if the model has no decoder.
    pub fn limits(&self) -> (usize, usize) {
        self.graph_pass(GraphSide::Decoder).map_or((0, 0), |pass| (pass.rows, pass.outputs))
    }

    /// Returns the same limits for an encoder batch.
    pub fn text_limits(&self) -> (usize, usize) {
        self.graph_pass(GraphSide::Encoder).map_or((0, 0), |pass| (pass.rows, pass.outputs))
    }

    /// Passes the inputs of all matmuls to `observer` from now on.
    ///
    /// # Errors
    /// If the backend is not that of the CPU.
    pub fn observe(&mut self, observer: Arc<Mutex<dyn Observer>>) -> Result<()> {
        self.executable.observe(observer)
    }

    /// Creates an empty sequence.
    pub fn create(&mut self) -> usize {
        self.cache.create()
    }

    /// Forks `sequence`: the new sequence shares its KV cache blocks until either is extended (copy on write).
    pub fn fork(&mut self, sequence: usize) -> Result<usize> {
        let fork = self.cache.fork(sequence)?;
        self.executable.fork(sequence, fork);
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
        if !self.model.module.capabilities().kv_cache {
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

    /// Returns the bytes of activations and of the KV cache.
    pub fn memory(&self) -> (usize, usize) {
        (self.executable.memory(), self.cache.bytes())
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
        let outcome = self.extend(pieces).and_then(|()| self.run(self.pass(GraphSide::Decoder)?));
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
        self.graph_pass(GraphSide::Decoder).ok().and_then(|pass| pass.graph.stretches())
    }

    /// Returns the length beyond which all positions of a sequence use different RoPE frequencies.
    pub(crate) fn switches(&self) -> Option<usize> {
        self.graph_pass(GraphSide::Decoder).ok().and_then(|pass| pass.graph.switches())
    }

    /// Resets the cancel flag only if it was what ended the pass, not on another error.
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Cancelled) {
            self.cancel_flag.store(false, Ordering::Relaxed);
        }
        outcome
    }

    fn check_batch(&self, side: GraphSide, rows: usize, wanted: usize) -> Result<()> {
        let pass = self.graph_pass(side)?;
        if rows > pass.rows || wanted > pass.outputs {
            let message = format!(
                "{rows} rows with {wanted} outputs; the context allows {} with {}",
                pass.rows, pass.outputs
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
        self.check_batch(GraphSide::Decoder, rows, pieces.iter().map(outputs).sum())?;
        let reads = self.passes.number(GraphSide::Encoder).is_some();
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

    /// Runs the batch through a pass, once the model's governor allows it.
    fn run(&mut self, number: usize) -> Result<()> {
        let governed = self.model.governor.begin(self.model.module.threads(), &self.cancel_flag);
        let input = ForwardInput {
            pass: number,
            batch: &self.batch,
            cache: &self.cache,
            cancel: &self.cancel_flag,
            threads: governed.threads,
        };
        let outcome = self.executable.forward(&mut self.pool, input).and_then(|()| {
            (0..self.batch.wanted.len()).try_for_each(|row| Error::unless_finite("output", self.output(row)))
        });
        let decodes = self.passes.list[number].side == GraphSide::Decoder && self.batch.writes();
        self.model.governor.end(governed, outcome.is_ok() && decodes);
        outcome
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
        self.executable.output(row)
    }
}
