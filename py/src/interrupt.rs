//! Long calls: without the GIL, and ended by Ctrl-C.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;
use siskin::{CancelHandle, Result};

use crate::errors::IntoPyResult;
use crate::locks::lock;

/// How often a call looks for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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
    std::thread::scope(|scope| {
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
            Some(signal) => {
                cancel.reset();
                Err(signal)
            }
        }
    })
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    Ok(current.is(&threading.call_method0("main_thread")?))
}
