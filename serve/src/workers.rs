//! What computes one request at a time, such as transcribers: a few instances, and a queue of requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use siskin::{CancelHandle, Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::error::ApiError;
use crate::sync::lock;

/// How many requests of a model run at the same time: while one tokenizes, another one computes.
const MAX_INSTANCES: usize = 2;

type Create<T> = Box<dyn Fn() -> Result<T> + Send + Sync>;

/// Instances of a model, which are created when they are needed.
pub(crate) struct Workers<T> {
    create: Create<T>,
    cancel_handle: fn(&T) -> CancelHandle,
    idle: Mutex<Vec<T>>,
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    max_waiting: usize,
}

/// What cancels a running request.
#[derive(Default)]
struct RunState {
    /// The handle of its instance while that computes for it.
    handle: Option<CancelHandle>,
    has_client: bool,
}

/// A running request: canceled if it is dropped before it has ended.
struct Running(Arc<Mutex<RunState>>);

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.has_client = false;
        if let Some(handle) = state.handle.take() {
            handle.cancel();
        }
    }
}

/// A request that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T: Send + 'static> Workers<T> {
    /// At most `max_waiting` requests wait; further ones are rejected.
    pub(crate) fn new(
        create: impl Fn() -> Result<T> + Send + Sync + 'static,
        cancel_handle: fn(&T) -> CancelHandle,
        max_waiting: usize,
    ) -> Self {
        Self {
            create: Box::new(create),
            cancel_handle,
            idle: Mutex::default(),
            free: Arc::new(Semaphore::new(MAX_INSTANCES)),
            waiting: AtomicUsize::new(0),
            max_waiting,
        }
    }

    /// Runs `work` with an instance on another thread. Dropping the future cancels it.
    pub(crate) async fn run<R: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut T) -> Result<R> + Send + 'static,
    ) -> std::result::Result<R, ApiError> {
        let enters = |waiting: usize| (waiting <= self.max_waiting).then_some(waiting + 1);
        if let Err(waiting) = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, enters) {
            let message = format!("{waiting} requests wait already; try again later");
            return Err(Error::new(ErrorKind::Overloaded, "queue", message).into());
        }
        let waiting = Waiting(&self.waiting);
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(|_| ApiError::shutting_down())?;
        drop(waiting);
        let workers = Arc::clone(self);
        let running = Running(Arc::new(Mutex::new(RunState { handle: None, has_client: true })));
        let state = Arc::clone(&running.0);
        let run = move || {
            // Free when the work has ended, whether or not the client still waits.
            let _permit = permit;
            let idle = lock(&workers.idle).pop();
            let mut instance = idle.map_or_else(&workers.create, Ok)?;
            let handle = (workers.cancel_handle)(&instance);
            handle.reset();
            let has_client = {
                let mut state = lock(&state);
                state.handle = Some(handle).filter(|_| state.has_client);
                state.has_client
            };
            let outcome = if has_client { work(&mut instance) } else { Err(Error::canceled("request")) };
            // From now on a cancellation would be that of the next request.
            lock(&state).handle.take();
            lock(&workers.idle).push(instance);
            outcome
        };
        let outcome = tokio::task::spawn_blocking(run).await;
        Ok(outcome.map_err(|_| ApiError::panicked())??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn requests_are_canceled_with_their_clients() {
        block_on(async {
            let workers = Arc::new(Workers::new(|| Ok(CancelHandle::new()), CancelHandle::clone, 8));
            let (sender, ended) = std::sync::mpsc::channel();
            let wait = move |handle: &mut CancelHandle| {
                let start = Instant::now();
                while !handle.is_canceled() && start.elapsed() < Duration::from_secs(20) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                sender.send(handle.is_canceled()).unwrap();
                Ok(())
            };
            let left = tokio::time::timeout(Duration::from_millis(50), workers.run(wait)).await;
            assert!(left.is_err());
            assert!(ended.recv_timeout(Duration::from_secs(10)).unwrap());
            // The instance is used again.
            let is_canceled = workers.run(|handle| Ok(handle.is_canceled())).await.unwrap();
            assert!(!is_canceled);
        });
    }

    #[test]
    fn too_many_requests_are_rejected() {
        block_on(async {
            let workers = Arc::new(Workers::new(|| Ok(CancelHandle::new()), CancelHandle::clone, 1));
            let sleep = |_: &mut CancelHandle| {
                std::thread::sleep(Duration::from_millis(100));
                Ok(())
            };
            let all: Vec<_> = (0..8)
                .map(|_| {
                    let workers = Arc::clone(&workers);
                    async move { workers.run(sleep).await }
                })
                .map(tokio::spawn)
                .collect();
            let mut ok = 0;
            for one in all {
                ok += usize::from(one.await.unwrap().is_ok());
            }
            assert!((2..8).contains(&ok), "{ok}");
        });
    }
}
