//! Texts to embed: those of many clients share batches.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::wake::WakerSlot;
use crate::encoder::{
    EmbedOptions, EmbeddingBatches, EmbeddingWindows, Encoder, EncoderInput, EncoderOptions,
};
use crate::model::Model;
use crate::{Error, ErrorKind, Result};
use siskin_backend::cancel::CancelHandle;
use siskin_backend::thread_pool::SharedThreadPool;
use siskin_scheduler::engine::{BatchQueue, TokenEngine};

/// The maximum number of texts that wait; a single request may have more if nothing else waits.
const MAX_WAITING: usize = 4096;
/// The number of texts that an encoder of an engine adds at once.
const MAX_PART: usize = 128;

/// An encoder of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncoderId(pub(super) usize);

/// The vectors of some texts, once they are computed. Dropping it cancels those that wait.
pub struct EmbeddingRequest {
    engine: TokenEngine,
    texts: Arc<SharedResult>,
    owners: Vec<usize>,
    lengths: Vec<usize>,
    options: EmbedOptions,
}

/// What a request and the encoder share.
struct SharedResult {
    vectors: Mutex<Vec<Vec<f32>>>,
    error: Mutex<Option<Error>>,
    /// Windows without a vector.
    missing: AtomicUsize,
    is_canceled: AtomicBool,
    reader: WakerSlot,
}

/// The encoder, and the texts that wait for it.
pub(super) struct EncoderQueue {
    /// Tokenizes, and computes nothing.
    tokenizing: Encoder,
    options: EncoderOptions,
    thread_pool: SharedThreadPool,
    /// Computes; `None` after a panic, and before the first batch.
    computing: Mutex<Option<Encoder>>,
    waiting: Mutex<VecDeque<WaitingWindow>>,
    /// Whether further texts are rejected.
    is_closed: AtomicBool,
}

/// The batches of an engine that an [`Encoder`] adds its texts to.
pub(super) struct SharedBatches {
    engine: TokenEngine,
    queue: Arc<EncoderQueue>,
}

impl SharedBatches {
    pub(super) fn new(engine: TokenEngine, queue: Arc<EncoderQueue>) -> Self {
        Self { engine, queue }
    }

    /// Returns a handle that wakes the thread that waits in [`Self::embed`].
    pub(super) fn cancel_handle(&self) -> CancelHandle {
        CancelHandle::with_notify(self.engine.waker())
    }
}

impl EmbeddingBatches for SharedBatches {
    fn embed(
        &self,
        inputs: Vec<EncoderInput>,
        options: &EmbedOptions,
        cancel: &CancelHandle,
    ) -> Result<Vec<Vec<f32>>> {
        let (mut inputs, mut vectors) = (inputs.into_iter(), Vec::new());
        loop {
            // In parts, between which others have their turn.
            let part: Vec<_> = inputs.by_ref().take(MAX_PART).collect();
            if part.is_empty() {
                return Ok(vectors);
            }
            let windows = EmbeddingWindows { owners: (0..part.len()).collect(), inputs: part };
            let request = self.queue.submit(&self.engine, windows, options)?;
            self.engine.wait_until(&|| request.texts.is_ready() || cancel.is_canceled());
            if cancel.is_canceled() {
                cancel.reset();
                return Err(Error::canceled("encoder"));
            }
            vectors.extend(request.take()?);
        }
    }
}

struct WaitingWindow {
    input: EncoderInput,
    /// Its request, and its index there.
    request: Arc<SharedResult>,
    index: usize,
    options: EmbedOptions,
}

/// Locks a mutex, also a poisoned one: what it protects is valid after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EmbeddingRequest {
    /// Returns the number of tokens of the texts, special tokens included.
    pub fn token_count(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Waits for the vectors, and runs passes for all requests meanwhile unless the engine has a thread of its own.
    pub fn vectors(self) -> Result<Vec<Vec<f32>>> {
        self.engine.wait_until(&|| self.texts.is_ready());
        self.take()
    }

    /// Returns the vectors if they are there; else wakes the task of `context` when they are. Call it no more after it
    /// returned them.
    ///
    /// Only for engines with a thread of their own ([`Drive::Thread`](super::Drive::Thread)): it runs no passes.
    pub fn poll_vectors(&mut self, context: &Context<'_>) -> Poll<Result<Vec<Vec<f32>>>> {
        self.texts.reader.register(context);
        if self.texts.is_ready() { Poll::Ready(self.take()) } else { Poll::Pending }
    }

    fn take(&self) -> Result<Vec<Vec<f32>>> {
        if let Some(error) = lock(&self.texts.error).take() {
            return Err(error);
        }
        let vectors = std::mem::take(&mut *lock(&self.texts.vectors));
        self.options.join_windows(&self.owners, &self.lengths, vectors)
    }
}

impl Drop for EmbeddingRequest {
    fn drop(&mut self) {
        self.texts.is_canceled.store(true, Ordering::Release);
    }
}

impl SharedResult {
    fn is_ready(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Sets the vector of a window.
    fn deliver(&self, index: usize, outcome: Result<Vec<f32>>) {
        match outcome {
            Ok(vector) => lock(&self.vectors)[index] = vector,
            Err(error) => _ = lock(&self.error).get_or_insert(error),
        }
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.reader.wake();
        }
    }
}

impl WaitingWindow {
    fn is_wanted(&self) -> bool {
        !self.request.is_canceled.load(Ordering::Acquire)
    }
}

impl EncoderQueue {
    pub(super) fn new(model: &Model, options: EncoderOptions, pool: SharedThreadPool) -> Result<Self> {
        Ok(Self {
            tokenizing: model.encoder(options)?,
            options,
            thread_pool: pool,
            computing: Mutex::default(),
            waiting: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Computes vectors. Never panics.
    fn compute(&self, inputs: &[EncoderInput], options: &EmbedOptions) -> Result<Vec<Vec<f32>>> {
        let mut slot = lock(&self.computing);
        let taken = slot.take();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut encoder = match taken {
                Some(encoder) => encoder,
                None => {
                    let mut encoder = self.tokenizing.model().encoder(self.options)?;
                    encoder.set_thread_pool(self.thread_pool.clone());
                    encoder
                }
            };
            let vectors = encoder.embed_tokens(inputs, options);
            *slot = Some(encoder);
            vectors
        }));
        outcome.unwrap_or_else(|_| Err(internal_error()))
    }

    /// Returns whether it computes with these options of a model.
    pub(super) fn is_for(&self, model: &Model, options: &EncoderOptions) -> bool {
        self.options == *options && self.tokenizing.model().is_same(model)
    }

    pub(super) fn max_tokens(&self) -> usize {
        self.tokenizing.max_tokens()
    }

    pub(super) fn windows<T: AsRef<str>>(
        &self,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<EmbeddingWindows> {
        self.tokenizing.embedding_windows(texts, options)
    }

    pub(super) fn windows_of_tokens(
        &self,
        texts: Vec<EncoderInput>,
        options: &EmbedOptions,
    ) -> Result<EmbeddingWindows> {
        self.tokenizing.embedding_windows_of(texts, options)
    }

    /// Appends a request to the queue.
    pub(super) fn submit(
        &self,
        engine: &TokenEngine,
        windows: EmbeddingWindows,
        options: &EmbedOptions,
    ) -> Result<EmbeddingRequest> {
        let EmbeddingWindows { owners, inputs } = windows;
        let lengths = inputs.iter().map(|input| input.ids.len()).collect();
        let request = Arc::new(SharedResult {
            vectors: Mutex::new(vec![Vec::new(); inputs.len()]),
            error: Mutex::default(),
            missing: AtomicUsize::new(inputs.len()),
            is_canceled: AtomicBool::new(false),
            reader: WakerSlot::default(),
        });
        let mut waiting = lock(&self.waiting);
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Overloaded, "engine", "it is shutting down"));
        }
        waiting.retain(WaitingWindow::is_wanted);
        if !waiting.is_empty() && waiting.len() + inputs.len() > MAX_WAITING {
            let message = format!("{} texts wait already; try again later", waiting.len());
            return Err(Error::new(ErrorKind::Overloaded, "queue", message));
        }
        waiting.extend(inputs.into_iter().enumerate().map(|(index, input)| WaitingWindow {
            input,
            request: Arc::clone(&request),
            index,
            options: options.unfinished(),
        }));
        drop(waiting);
        engine.notify();
        Ok(EmbeddingRequest { engine: engine.clone(), texts: request, owners, lengths, options: *options })
    }

    /// Takes the texts of the next batch: the one that waits longest, and those that fit beside it.
    fn next_batch(&self) -> Vec<WaitingWindow> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(WaitingWindow::is_wanted);
        let Some(first) = waiting.pop_front() else { return Vec::new() };
        let rows_of = |window: &WaitingWindow| self.tokenizing.rows_of(&window.input);
        let mut room = self.tokenizing.batch_rows().saturating_sub(rows_of(&first));
        let mut batch = vec![first];
        let mut index = 0;
        while let Some(window) = waiting.get(index).filter(|_| room > 0) {
            let rows = rows_of(window);
            if rows > room || window.options != batch[0].options {
                index += 1;
                continue;
            }
            room -= rows;
            batch.extend(waiting.remove(index));
        }
        batch
    }
}

impl BatchQueue for EncoderQueue {
    fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    fn run_batch(&self) {
        let batch = self.next_batch();
        let Some(first) = batch.first() else { return };
        let options = first.options;
        let (inputs, places): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|window| (window.input, (window.request, window.index))).unzip();
        match self.compute(&inputs, &options) {
            Ok(vectors) => {
                for ((request, index), vector) in places.iter().zip(vectors) {
                    request.deliver(*index, Ok(vector));
                }
            }
            Err(error) if places.len() == 1 => places[0].0.deliver(places[0].1, Err(error)),
            // Each by itself, so that only those fail that cause it.
            Err(_) => {
                for ((request, index), input) in places.iter().zip(&inputs) {
                    let outcome = self.compute(std::slice::from_ref(input), &options);
                    request.deliver(*index, outcome.map(|mut vectors| vectors.pop().unwrap_or_default()));
                }
            }
        }
    }

    fn trim(&self) {
        *lock(&self.computing) = None;
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn cancel_all(&self) {
        let canceled = std::mem::take(&mut *lock(&self.waiting));
        for window in canceled {
            window.request.deliver(window.index, Err(Error::canceled("request")));
        }
    }
}

fn internal_error() -> Error {
    Error::new(ErrorKind::State, "encoder", "internal error, please report it")
}
