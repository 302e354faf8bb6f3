//! Passes of contexts outside of the engine, such as those of sequence-to-sequence models: each runs on the thread that
//! needs it, when it is the model's turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::{ModelRunner, Shared};
use crate::sync::lock;
use siskin_backend::context::PassScheduler;

/// How often a thread that waits for its turn looks whether it was canceled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// How long the engine waits for the next pass of a model after one has ended, at most.
const MAX_GRACE: Duration = Duration::from_millis(2);

/// The passes of a model that wait, and the one that runs.
pub(super) struct PassQueue {
    engine: Weak<Shared>,
    state: Mutex<PassQueueState>,
    /// Notified when a pass waits.
    pushed: Condvar,
}

#[derive(Default)]
struct PassQueueState {
    next: u64,
    waiting: VecDeque<u64>,
    running: Option<u64>,
    /// The compute time that the engine has not counted yet.
    elapsed: Duration,
    /// Until when another pass is expected.
    grace: Option<Instant>,
}

impl PassQueueState {
    /// Returns how long to wait for the next pass: the thread of the last one is about to submit it.
    fn grace(&self) -> Option<Duration> {
        let is_free = self.waiting.is_empty() && self.running.is_none();
        let left = self.grace.filter(|_| is_free)?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

impl PassQueue {
    pub(super) fn new(engine: &Arc<Shared>) -> Self {
        Self { engine: Arc::downgrade(engine), state: Mutex::default(), pushed: Condvar::new() }
    }

    fn push(&self) -> u64 {
        let mut state = lock(&self.state);
        state.next += 1;
        let pass = state.next;
        state.waiting.push_back(pass);
        drop(state);
        self.pushed.notify_one();
        pass
    }

    /// Returns whether the pass has its turn.
    fn is_running(&self, pass: u64) -> bool {
        lock(&self.state).running == Some(pass)
    }

    /// Gives the next pass its turn. Returns whether there was any.
    fn start_next(&self) -> bool {
        let mut state = lock(&self.state);
        if state.running.is_none() {
            state.running = state.waiting.pop_front();
            return state.running.is_some();
        }
        false
    }
}

impl PassScheduler for PassQueue {
    fn begin(&self, cancel: &AtomicBool) -> bool {
        // Without an engine, there is nothing else to compute.
        let Some(engine) = self.engine.upgrade() else { return true };
        let mut runners = engine.idle_runners();
        let idle = runners.as_mut().filter(|runners| runners.are_idle());
        let is_idle = idle.map(|runners| runners.equalize()).is_some();
        let pass = self.push();
        if is_idle {
            // The engine need not be woken.
            self.start_next();
        }
        drop(runners);
        if self.is_running(pass) {
            return true;
        }
        engine.notify();
        engine.advance_polling(CANCEL_INTERVAL, &|| self.is_running(pass) || cancel.load(Ordering::Relaxed));
        let mut state = lock(&self.state);
        state.waiting.retain(|&waiting| waiting != pass);
        state.running == Some(pass)
    }

    fn end(&self, elapsed: Duration) {
        let mut state = lock(&self.state);
        state.running = None;
        state.elapsed += elapsed;
        state.grace = Instant::now().checked_add(MAX_GRACE.min(elapsed / 4));
        drop(state);
        if let Some(engine) = self.engine.upgrade() {
            engine.notify();
        }
    }
}

/// The model of a queue.
pub(super) struct ExternalPassRunner {
    queue: Weak<PassQueue>,
}

impl ExternalPassRunner {
    pub(super) fn new(queue: &Arc<PassQueue>) -> Self {
        Self { queue: Arc::downgrade(queue) }
    }

    fn is(&self, condition: impl Fn(&PassQueueState) -> bool) -> bool {
        self.queue.upgrade().is_some_and(|queue| condition(&lock(&queue.state)))
    }
}

impl ModelRunner for ExternalPassRunner {
    fn collect(&mut self, _: Duration) -> bool {
        false
    }

    fn try_collect(&mut self, _: Duration) {}

    fn has_work(&self) -> bool {
        self.is(|state| !state.waiting.is_empty())
    }

    fn is_idle(&self) -> bool {
        !self.has_work() && !self.is_computing()
    }

    fn is_gone(&self) -> bool {
        self.queue.strong_count() == 0
    }

    fn is_computing(&self) -> bool {
        self.is(|state| state.running.is_some())
    }

    fn take_external_time(&mut self) -> Duration {
        let queue = self.queue.upgrade();
        queue.map_or(Duration::ZERO, |queue| std::mem::take(&mut lock(&queue.state).elapsed))
    }

    fn expects_pass(&self) -> bool {
        self.is(|state| state.grace().is_some())
    }

    fn wait_for_pass(&mut self) {
        let Some(queue) = self.queue.upgrade() else { return };
        let state = lock(&queue.state);
        if let Some(grace) = state.grace() {
            drop(queue.pushed.wait_timeout_while(state, grace, |state| state.waiting.is_empty()));
        }
    }

    fn step(&mut self, _: Duration, _: &dyn Fn() -> Duration) -> bool {
        self.queue.upgrade().is_some_and(|queue| queue.start_next())
    }

    fn close(&mut self, _: &dyn Fn() -> bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Drive, TokenEngine};
    use std::thread;

    /// Runs passes of `length` until `end`; returns their compute time.
    fn run_passes(scheduler: &dyn PassScheduler, length: Duration, end: Instant) -> Duration {
        let mut total = Duration::ZERO;
        while Instant::now() < end {
            assert!(scheduler.begin(&AtomicBool::new(false)));
            let start = Instant::now();
            thread::sleep(length);
            total += start.elapsed();
            scheduler.end(start.elapsed());
        }
        total
    }

    #[test]
    fn models_get_equal_compute_time_whatever_their_passes_take() {
        for drive in [Drive::Thread, Drive::Caller] {
            let engine = TokenEngine::new(drive).unwrap();
            let (short, long) = (engine.add_pass_queue(), engine.add_pass_queue());
            let end = Instant::now() + Duration::from_millis(1500);
            let [short, long] = thread::scope(|scope| {
                let short = scope.spawn(|| run_passes(&*short, Duration::from_millis(2), end));
                let long = scope.spawn(|| run_passes(&*long, Duration::from_millis(50), end));
                [short, long].map(|thread| thread.join().unwrap())
            });
            let ratio = short.as_secs_f64() / long.as_secs_f64();
            assert!((0.5..2.0).contains(&ratio), "{drive:?}: {short:?}, {long:?}");
            let total = short + long;
            assert!(total <= Duration::from_millis(1700), "{drive:?}: two passes ran at once ({total:?})");
        }
    }

    #[test]
    fn a_model_alone_owes_others_nothing_later() {
        for drive in [Drive::Thread, Drive::Caller] {
            let engine = TokenEngine::new(drive).unwrap();
            let (alone, late) = (engine.add_pass_queue(), engine.add_pass_queue());
            let length = Duration::from_millis(5);
            run_passes(&*alone, length, Instant::now() + Duration::from_millis(600));
            let end = Instant::now() + Duration::from_millis(600);
            let [alone, late] = thread::scope(|scope| {
                [&alone, &late]
                    .map(|queue| scope.spawn(|| run_passes(&**queue, length, end)))
                    .map(|thread| thread.join().unwrap())
            });
            let ratio = alone.as_secs_f64() / late.as_secs_f64();
            assert!((0.5..2.0).contains(&ratio), "{drive:?}: {alone:?}, {late:?}");
        }
    }

    #[test]
    fn a_pass_that_waits_can_be_canceled() {
        let engine = TokenEngine::new(Drive::Thread).unwrap();
        let (running, waiting) = (engine.add_pass_queue(), engine.add_pass_queue());
        let cancel = AtomicBool::new(false);
        assert!(running.begin(&cancel));
        thread::scope(|scope| {
            let waits = scope.spawn(|| waiting.begin(&cancel));
            thread::sleep(Duration::from_millis(30));
            assert!(!waits.is_finished());
            cancel.store(true, Ordering::Relaxed);
            assert!(!waits.join().unwrap());
        });
        running.end(Duration::ZERO);
        assert!(waiting.begin(&AtomicBool::new(false)), "the canceled pass is not in the way");
        waiting.end(Duration::ZERO);
    }

    #[test]
    fn passes_run_without_an_engine() {
        let engine = TokenEngine::new(Drive::Caller).unwrap();
        let queue = engine.add_pass_queue();
        drop(engine);
        assert!(queue.begin(&AtomicBool::new(false)));
        queue.end(Duration::ZERO);
    }
}
