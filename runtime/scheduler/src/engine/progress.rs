//! Waiting for passes.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::sync::lock;

/// Wakes threads that wait for a pass, or for something to run. Waiting does not keep the engine alive.
#[derive(Default)]
pub(super) struct Progress {
    /// The number of passes and of other events.
    count: Mutex<u64>,
    changed: Condvar,
}

impl Progress {
    pub(super) fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Wakes the threads that wait.
    pub(super) fn notify(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    /// Waits until there was progress since `seen`, and not longer than `timeout`.
    pub(super) fn wait(&self, seen: u64, timeout: Option<Duration>) {
        let count = lock(&self.count);
        let is_unchanged = |count: &mut u64| *count == seen;
        match timeout {
            Some(timeout) => drop(self.changed.wait_timeout_while(count, timeout, is_unchanged)),
            None => drop(self.changed.wait_while(count, is_unchanged)),
        }
    }
}
