//! Progress, reported to a Python function.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use siskin::CancelHandle;
use siskin_convert::ProgressSink;

use crate::locks::lock;

/// How often the function is called.
const INTERVAL: Duration = Duration::from_millis(50);

/// Calls `function(label, done, total)` during the work. An exception ends it.
pub(crate) struct PyProgress {
    function: Option<Py<PyAny>>,
    label: String,
    total: AtomicU64,
    done: AtomicU64,
    called: Mutex<Option<Instant>>,
    /// What the function raised.
    raised: Mutex<Option<PyErr>>,
    cancel: CancelHandle,
}

impl PyProgress {
    pub(crate) fn new(function: Option<Py<PyAny>>, label: String) -> Self {
        Self {
            function,
            label,
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            called: Mutex::new(None),
            raised: Mutex::new(None),
            cancel: CancelHandle::new(),
        }
    }

    /// Sets the progress. Returns false to end the work.
    pub(crate) fn set(&self, done: u64, total: u64) -> bool {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.report(done == total);
        !self.cancel.is_canceled()
    }

    /// Returns what cancels the work.
    pub(crate) fn cancel_handle(&self) -> &CancelHandle {
        &self.cancel
    }

    /// Returns the exception that ended the work.
    pub(crate) fn take_raised(&self) -> Option<PyErr> {
        lock(&self.raised).take()
    }

    fn report(&self, is_last: bool) {
        let mut called = lock(&self.called);
        if called.is_some_and(|time| time.elapsed() < INTERVAL) && !is_last {
            return;
        }
        *called = Some(Instant::now());
        drop(called);
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        let outcome = Python::attach(|py| {
            self.function
                .as_ref()
                .map_or(Ok(()), |function| function.call1(py, (&self.label, done, total)).map(drop))
        });
        if let Err(raised) = outcome {
            self.cancel.cancel();
            lock(&self.raised).get_or_insert(raised);
        }
    }
}

impl ProgressSink for PyProgress {
    fn total(&self, bytes: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(bytes, Ordering::Relaxed);
        self.report(false);
    }

    fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.report(done == self.total.load(Ordering::Relaxed));
    }

    fn message(&self, _text: &str) {
        self.report(false);
    }

    fn canceled(&self) -> bool {
        self.cancel.is_canceled()
    }
}
