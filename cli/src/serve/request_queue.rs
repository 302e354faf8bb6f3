//! The request queue, and the running request.

use super::request::{Id, RejectedRequest, Request};
use siskin::CancelHandle;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A queue entry: a request, or the error of an invalid one.
pub(super) type Job = std::result::Result<Request, RejectedRequest>;

/// The bounded queue between the reader thread and the worker.
pub(super) struct RequestQueue {
    state: Mutex<State>,
    changed: Condvar,
    max_bytes: usize,
    max_jobs: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    ended: bool,
    running: Option<Running>,
}

struct Waiting {
    job: Job,
    bytes: usize,
    stopped: bool,
}

/// The running request.
struct Running {
    id: Option<Id>,
    handle: Option<CancelHandle>,
    stopped: bool,
}

impl Running {
    fn stop(&mut self) {
        self.stopped = true;
        self.handle.iter().for_each(CancelHandle::cancel);
    }
}

/// Maximum number of queued requests.
const MAX_JOBS: usize = 1024;

impl RequestQueue {
    pub(super) fn new(max_bytes: usize) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { state, changed, max_bytes, max_jobs: MAX_JOBS }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a request of `bytes` bytes; blocks while the queue is full.
    pub(super) fn put(&self, job: Job, bytes: usize) {
        let mut state = self.state();
        while !state.waiting.is_empty()
            && (state.bytes + bytes > self.max_bytes || state.waiting.len() >= self.max_jobs)
        {
            state = self.changed(state);
        }
        state.bytes += bytes;
        state.waiting.push_back(Waiting { job, bytes, stopped: false });
        self.changed.notify_all();
    }

    /// Closes the queue.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Returns the next request and makes it the running one; blocks while the queue is empty. `None` once it is closed
    /// and empty.
    pub(super) fn take(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(Waiting { job, bytes, stopped }) = state.waiting.pop_front() {
                state.bytes -= bytes;
                let id = job.as_ref().ok().and_then(|request| request.id.clone());
                state.running = Some(Running { id, handle: None, stopped });
                self.changed.notify_all();
                return Some(job);
            }
            if state.ended {
                return None;
            }
            state = self.changed(state);
        }
    }

    /// Cancels every queued or running request with this id.
    pub(super) fn cancel(&self, id: &Id) {
        let mut state = self.state();
        for waiting in &mut state.waiting {
            let named = waiting.job.as_ref().is_ok_and(|request| request.id.as_ref() == Some(id));
            waiting.stopped |= named;
        }
        if let Some(running) = state.running.as_mut().filter(|running| running.id.as_ref() == Some(id)) {
            running.stop();
        }
    }

    /// Sets the handle that stops the running request.
    pub(super) fn stoppable(&self, handle: CancelHandle) {
        if let Some(running) = &mut self.state().running {
            if running.stopped {
                handle.cancel();
            }
            running.handle = Some(handle);
        }
    }

    /// Ends the running request. Withdraws a stop that came after its last step, so that it does not stop the next one.
    pub(super) fn done(&self) {
        if let Some(handle) = self.state().running.take().and_then(|running| running.handle) {
            handle.reset();
        }
    }
}
