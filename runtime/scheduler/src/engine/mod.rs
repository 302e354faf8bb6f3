//! The engine: requests of several models on one thread pool.

mod decoder;
mod encoder;
mod external_passes;
mod kv_cache;
mod memory_budget;
mod model_runners;
mod pass_times;
mod progress;
mod sampler;
mod session;
mod shutdown;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

pub use decoder::{SchedulerStats, SchedulingOptions};
pub use encoder::BatchQueue;
pub use memory_budget::{MemoryBudget, MemoryReservation};
pub use pass_times::PassTimes;
pub use sampler::{RequestOutcome, RequestSampler, Sampled};
pub use session::SessionHandle;

use crate::policy::{queue_full, too_late};
use crate::prefix_cache::{PrefixStore, PrefixStoreStats};
use crate::request::{RequestLimits, RequestSpec};
use crate::sync::lock;
use decoder::{DecoderRunner, Submission};
use encoder::EncoderRunner;
use external_passes::{ExternalPassRunner, PassQueue};
use model_runners::{ModelRunner, ModelRunners};
use progress::Progress;
use siskin_backend::block_table::SequenceId;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{Context, PassScheduler};
use siskin_backend::fair_mutex::FairMutex;
use siskin_format::{Error, ErrorKind, Result};

/// How often threads that wait look at deadlines, pauses, and models that are in use elsewhere.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long cached prefixes are written when an engine is drained.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Which threads run the passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drive {
    /// The threads that wait for results: one of them runs passes for all, the others wait for it.
    #[default]
    Caller,
    /// A thread of the engine.
    Thread,
}

/// A model of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelId(usize);

/// Runs requests of several models in batches, on one thread pool. Clones share it.
///
/// The contexts of its models should have been created with one
/// [`SharedThreadPool`](siskin_backend::thread_pool::SharedThreadPool), which one pass uses at a time.
#[derive(Clone)]
pub struct TokenEngine {
    shared: Arc<Shared>,
}

struct Shared {
    start: Instant,
    drive: Drive,
    /// Locked for the duration of a pass.
    runners: FairMutex<ModelRunners>,
    /// Models that no pass has seen yet: adding one does not wait for a pass.
    added: Mutex<Vec<Box<dyn ModelRunner>>>,
    /// What other threads need of a decoder while a pass runs, by model; `None` if it was removed.
    inboxes: Mutex<Vec<Option<Arc<RequestInbox>>>>,
    /// The queues of encoders.
    queues: Mutex<Vec<Weak<dyn BatchQueue>>>,
    progress: Arc<Progress>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The engine's thread ends.
        self.progress.notify();
    }
}

/// What other threads need of a decoder while a pass runs.
struct RequestInbox {
    context: Arc<FairMutex<Context>>,
    options: SchedulingOptions,
    limits: RequestLimits,
    /// The identities of the adapters that requests can choose.
    adapters: Vec<[u8; 32]>,
    store: Option<Arc<dyn PrefixStore>>,
    /// Its part of the engine's memory, until its last request and session are dropped.
    _reservation: Option<MemoryReservation>,
    /// Sequences of sessions that were dropped while a pass ran.
    removed: Mutex<Vec<SequenceId>>,
    /// The number of sessions.
    sessions: AtomicUsize,
    /// Requests that the scheduler has not seen yet.
    submissions: Mutex<Vec<Submission>>,
    /// Requests that have not started yet, those that it has not taken included.
    waiting: AtomicUsize,
    /// The predicted wait of a request that arrives now, in microseconds.
    predicted_wait: AtomicU64,
    /// The counters after the last pass.
    stats: Mutex<SchedulerStats>,
    /// All requests are to be canceled, also those that come later.
    is_closed: AtomicBool,
    /// The handles of the requests in the running pass, and the one that cancels it.
    pass: Mutex<Vec<CancelHandle>>,
    abort: CancelHandle,
    is_draining: AtomicBool,
}

/// A submitted request.
#[derive(Clone)]
pub struct RequestHandle {
    shared: Arc<Shared>,
    inbox: Arc<RequestInbox>,
    cancel: CancelHandle,
}

/// Cancels a request, and does not keep its engine alive.
#[derive(Clone)]
pub struct RequestCanceler {
    shared: Weak<Shared>,
    inbox: Weak<RequestInbox>,
    cancel: CancelHandle,
}

impl TokenEngine {
    /// Creates an engine without models.
    pub fn new(drive: Drive) -> Result<Self> {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            drive,
            runners: FairMutex::default(),
            added: Mutex::default(),
            inboxes: Mutex::default(),
            queues: Mutex::default(),
            progress: Arc::default(),
        });
        if drive == Drive::Thread {
            let (weak, progress) = (Arc::downgrade(&shared), Arc::clone(&shared.progress));
            let run = move || {
                loop {
                    let seen = progress.count();
                    let Some(shared) = weak.upgrade() else { return };
                    // Models handle panics of their own. Another one must not leave all clients waiting.
                    let outcome = catch_unwind(AssertUnwindSafe(|| shared.step()));
                    let timeout = shared.has_work().then_some(POLL_INTERVAL);
                    drop(shared);
                    if !outcome.unwrap_or(true) {
                        progress.wait(seen, timeout);
                    }
                }
            };
            thread::Builder::new()
                .name("siskin-engine".to_owned())
                .spawn(run)
                .map_err(|error| Error::new(ErrorKind::Memory, "threads", error.to_string()))?;
        }
        Ok(Self { shared })
    }

    /// Adds a model with the context that its requests share, whose memory is `reservation`. Prefixes that leave memory go
    /// to `store`.
    pub fn add_model(
        &self,
        context: Context,
        options: SchedulingOptions,
        store: Option<Arc<dyn PrefixStore>>,
        reservation: Option<MemoryReservation>,
    ) -> ModelId {
        let limits = decoder::request_limits(&context);
        let adapters = context.model().adapters().iter().map(|adapter| adapter.identity).collect();
        let context = Arc::new(FairMutex::new(context));
        let inbox = Arc::new(RequestInbox {
            context: Arc::clone(&context),
            options,
            limits,
            adapters,
            store: store.filter(|_| options.prefix_cache),
            _reservation: reservation,
            removed: Mutex::default(),
            sessions: AtomicUsize::new(0),
            submissions: Mutex::default(),
            waiting: AtomicUsize::new(0),
            predicted_wait: AtomicU64::new(0),
            stats: Mutex::default(),
            pass: Mutex::default(),
            abort: CancelHandle::new(),
            is_draining: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        let runner = DecoderRunner::new(context, Arc::clone(&inbox));
        let mut inboxes = lock(&self.shared.inboxes);
        inboxes.push(Some(inbox));
        let id = ModelId(inboxes.len() - 1);
        drop(inboxes);
        self.shared.add(Box::new(runner));
        id
    }

    /// Adds an encoder, which takes its batches from a queue. Call [`TokenEngine::notify`] after adding to the queue. The
    /// engine does not keep the queue alive.
    pub fn add_encoder(&self, queue: &Arc<dyn BatchQueue>) {
        let mut queues = lock(&self.shared.queues);
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
        drop(queues);
        self.shared.add(Box::new(EncoderRunner { queue: Arc::downgrade(queue) }));
    }

    /// Adds a model whose contexts are outside of the engine, but on its threads: their passes wait until it is the model's
    /// turn. The engine does not keep it alive.
    pub fn add_pass_queue(&self) -> Arc<dyn PassScheduler> {
        let queue = Arc::new(PassQueue::new(&self.shared));
        self.shared.add(Box::new(ExternalPassRunner::new(&queue)));
        queue
    }

    /// Returns what wakes the threads that wait in [`TokenEngine::wait_until`], and does not keep the engine alive.
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let progress = Arc::clone(&self.shared.progress);
        Arc::new(move || progress.notify())
    }

    /// Wakes the thread that runs the passes.
    pub fn notify(&self) {
        self.shared.notify();
    }

    /// Waits until `is_ready`, which a pass makes true, and runs passes meanwhile if the engine has no thread of its own.
    pub fn wait_until(&self, is_ready: &dyn Fn() -> bool) {
        self.shared.advance(is_ready);
    }

    /// Submits a request. Its sampler is called from the thread that runs the passes.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if too many requests wait or its deadline would pass before it starts;
    /// [`ErrorKind::TooLong`] if the prompt exceeds the context.
    pub fn submit(
        &self,
        model: ModelId,
        spec: RequestSpec,
        sampler: Box<dyn RequestSampler>,
    ) -> Result<RequestHandle> {
        let inbox = self.inbox(model)?;
        spec.check(&inbox.limits)?;
        let wait = Duration::from_micros(inbox.predicted_wait.load(Ordering::Relaxed));
        if spec.timeout.is_some_and(|timeout| wait > timeout) {
            return Err(too_late());
        }
        // Requests that can start in the next pass need no place in the queue.
        let free = inbox.options.max_running.saturating_sub(lock(&inbox.stats).running);
        let limit = inbox.options.max_waiting.saturating_add(free);
        let enters = |waiting: usize| (waiting < limit).then_some(waiting + 1);
        if let Err(waiting) = inbox.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, enters) {
            return Err(queue_full(waiting));
        }
        let adapter = usize::from(spec.adapter.0).checked_sub(1).and_then(|index| inbox.adapters.get(index));
        let salt = adapter.map_or(spec.salt, |adapter| spec.salt.with_adapter(adapter));
        let stored = inbox.store.as_ref().and_then(|store| store.read(salt, &spec.tokens));
        let (cancel, arrival) = (CancelHandle::new(), self.shared.now());
        let submission = Submission { spec, sampler, salt, stored, cancel: cancel.clone(), arrival };
        inbox.push(submission, &inbox.is_draining).inspect_err(|_| {
            inbox.waiting.fetch_sub(1, Ordering::AcqRel);
        })?;
        self.shared.notify();
        Ok(RequestHandle { shared: Arc::clone(&self.shared), inbox, cancel })
    }

    /// Returns a handle for a session of a model.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if the model has [`SchedulingOptions::max_sessions`].
    pub fn session_handle(&self, model: ModelId) -> Result<SessionHandle> {
        SessionHandle::new(Arc::clone(&self.shared), self.inbox(model)?)
    }

    fn find_inbox(&self, model: ModelId) -> Option<Arc<RequestInbox>> {
        lock(&self.shared.inboxes).get(model.0).cloned().flatten()
    }

    fn inbox(&self, model: ModelId) -> Result<Arc<RequestInbox>> {
        self.find_inbox(model).ok_or_else(unknown_model)
    }

    /// Returns the counters of a model's requests, as of its last pass.
    pub fn stats(&self, model: ModelId) -> Option<SchedulerStats> {
        let inbox = self.find_inbox(model)?;
        let stats = *lock(&inbox.stats);
        Some(SchedulerStats { waiting: inbox.waiting.load(Ordering::Relaxed), ..stats })
    }

    /// Returns how long a request that arrives now is predicted to wait for the prompts before it.
    pub fn predicted_wait(&self, model: ModelId) -> Option<Duration> {
        let inbox = self.find_inbox(model)?;
        Some(Duration::from_micros(inbox.predicted_wait.load(Ordering::Relaxed)))
    }

    /// Returns the counters of a model's store of prefixes; `None` if it has none.
    pub fn prefix_store_stats(&self, model: ModelId) -> Option<PrefixStoreStats> {
        self.find_inbox(model)?.store.as_ref().map(|store| store.stats())
    }

    /// Returns the maximum length of a model's requests in tokens.
    pub fn context_length(&self, model: ModelId) -> Option<usize> {
        self.find_inbox(model).map(|inbox| inbox.limits.context_length)
    }

    /// Runs a pass if there is something to run; false if there is not.
    pub fn step(&self) -> bool {
        self.shared.step()
    }

    /// Removes the cached prefixes of all models, and releases unused memory to the operating system, which provides it
    /// again on demand. Waits for the running pass.
    pub fn trim(&self) {
        self.shared.runners().list.iter_mut().for_each(|model| model.runner.trim());
    }
}

fn unknown_model() -> Error {
    Error::argument("model", "not a model of this engine")
}

impl RequestInbox {
    /// Adds a request, unless `rejects` is set.
    fn push(&self, submission: Submission, rejects: &AtomicBool) -> Result<()> {
        let mut submissions = lock(&self.submissions);
        if rejects.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Overloaded,
                "engine",
                "it is shutting down, or its model was removed",
            ));
        }
        submissions.push(submission);
        Ok(())
    }

    /// Cancels the running pass if there is one, and all of its requests are canceled or `others` says so of them.
    fn abort_pass(&self, others: impl Fn(&CancelHandle) -> bool) {
        let pass = lock(&self.pass);
        if !pass.is_empty() && pass.iter().all(|handle| handle.is_canceled() || others(handle)) {
            self.abort.cancel();
        }
    }
}

impl Shared {
    fn add(&self, runner: Box<dyn ModelRunner>) {
        lock(&self.added).push(runner);
        self.notify();
    }

    /// Locks the models, and takes those that were added.
    fn runners(&self) -> MutexGuard<'_, ModelRunners> {
        let mut runners = self.runners.lock();
        runners.take(&self.added);
        runners
    }

    /// The same, unless a pass runs.
    fn idle_runners(&self) -> Option<MutexGuard<'_, ModelRunners>> {
        let mut runners = self.runners.try_lock()?;
        runners.take(&self.added);
        Some(runners)
    }

    /// Returns the time since the engine was created.
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns whether a request is there, such as one whose reader is too slow.
    fn has_work(&self) -> bool {
        self.runners().list.iter().any(|model| model.runner.has_work())
    }

    /// Runs a pass, and wakes the threads that wait for it; false if no model has anything to do.
    fn step(&self) -> bool {
        let has_run = self.runners().step(self);
        if has_run {
            self.notify();
        }
        has_run
    }

    /// Ends requests that were canceled; while a pass runs, its thread does so afterwards.
    fn collect(&self) {
        if let Some(mut runners) = self.idle_runners() {
            let now = self.now();
            runners.list.iter_mut().for_each(|model| model.runner.try_collect(now));
        }
        self.notify();
    }

    /// Wakes the threads that wait for progress.
    fn notify(&self) {
        self.progress.notify();
    }

    /// Waits until `is_ready`, and runs passes meanwhile unless another thread does.
    fn advance(&self, is_ready: &dyn Fn() -> bool) {
        self.advance_polling(POLL_INTERVAL, is_ready);
    }

    /// The same, and looks at least so often whether `is_ready`.
    fn advance_polling(&self, interval: Duration, is_ready: &dyn Fn() -> bool) {
        loop {
            // Read before the lock is tried: a thread that holds it counts a step after it has let go.
            let seen = self.progress.count();
            if is_ready() {
                return;
            }
            if self.drive == Drive::Thread {
                self.progress.wait(seen, Some(interval));
                continue;
            }
            let has_run = self.idle_runners().map(|mut runners| runners.step(self));
            match has_run {
                Some(true) => self.notify(),
                Some(false) if is_ready() => return,
                Some(false) | None => self.progress.wait(seen, Some(interval)),
            }
        }
    }
}

impl RequestHandle {
    /// Waits until `is_ready`, which the request's sampler makes true, and runs passes meanwhile if the engine has no
    /// thread of its own.
    pub fn wait_until(&self, is_ready: &dyn Fn() -> bool) {
        self.shared.advance(is_ready);
    }

    /// Cancels the request. It takes effect at once if no pass is running, or if all requests of the running pass are
    /// canceled; else after the pass.
    pub fn cancel(&self) {
        self.cancel.cancel();
        self.inbox.abort_pass(|_| false);
        self.shared.collect();
    }

    /// Returns whether it was canceled.
    pub fn is_canceled(&self) -> bool {
        self.cancel.is_canceled()
    }

    /// Returns what cancels the request without keeping the engine alive.
    pub fn canceler(&self) -> RequestCanceler {
        let Self { shared, inbox, cancel } = self;
        let (shared, inbox) = (Arc::downgrade(shared), Arc::downgrade(inbox));
        RequestCanceler { shared, inbox, cancel: cancel.clone() }
    }
}

impl RequestCanceler {
    /// Cancels the request, as [`RequestHandle::cancel`]. Does nothing once the engine is gone.
    pub fn cancel(&self) {
        let Some((shared, inbox)) = self.shared.upgrade().zip(self.inbox.upgrade()) else { return };
        RequestHandle { shared, inbox, cancel: self.cancel.clone() }.cancel();
    }
}
