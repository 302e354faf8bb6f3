//! Long calls: without the GIL, and ended by Ctrl-C.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use siskin::{CancelHandle, Error, Result};

use crate::errors::IntoPyResult;
use crate::locks::lock;

/// How often a call checks for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a call that waits for another one checks whether it was canceled.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// Runs `work` without the GIL. In the main thread, where Python handles signals, `work` runs on another thread meanwhile,
/// and a signal handler that raises an exception cancels it through `cancel`.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    cancel: &CancelHandle,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    if !is_main_thread(py)? {
        return py.detach(work).into_py(py);
    }
    let (running, ended) = sync_channel::<()>(0);
    let ended = Mutex::new(ended);
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let _running = running;
            work()
        });
        let mut signal = None;
        while py.detach(|| lock(&ended).recv_timeout(POLL_INTERVAL)) == Err(RecvTimeoutError::Timeout) {
            if signal.is_none() {
                signal = py.check_signals().err();
                signal.iter().for_each(|_| cancel.cancel());
            }
        }
        let outcome = py.detach(|| worker.join()).unwrap_or_else(|panic| resume_unwind(panic));
        match signal {
            None => outcome.into_py(py),
            Some(signal) => Err(signal),
        }
    })
}

/// Runs `work` in the same way with a locked value. Ctrl-C also ends the wait for the lock. `prepare` returns what cancels
/// work with the value; a cancellation from before the call has no effect.
pub(crate) fn run_locked<T: Send, R: Send>(
    py: Python<'_>,
    mutex: &Mutex<T>,
    prepare: impl FnOnce(&mut T) -> Result<CancelHandle> + Send,
    work: impl FnOnce(&mut T) -> Result<R> + Send,
) -> PyResult<R> {
    let current: Arc<Mutex<Option<CancelHandle>>> = Arc::default();
    let notified = Arc::clone(&current);
    let cancel = CancelHandle::with_notify(Arc::new(move || {
        lock(&notified).iter().for_each(CancelHandle::cancel);
    }));
    run(py, &cancel, || {
        let mut value = lock_unless_canceled(mutex, &cancel)?;
        let handle = prepare(&mut value)?;
        handle.reset();
        *lock(&current) = Some(handle.clone());
        let outcome = match cancel.is_canceled() {
            true => Err(Error::canceled("call")),
            false => work(&mut value),
        };
        *lock(&current) = None;
        handle.reset();
        outcome
    })
}

fn lock_unless_canceled<'a, T>(mutex: &'a Mutex<T>, cancel: &CancelHandle) -> Result<MutexGuard<'a, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) if cancel.is_canceled() => return Err(Error::canceled("call")),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_INTERVAL),
        }
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    Ok(current.is(&threading.call_method0("main_thread")?))
}
