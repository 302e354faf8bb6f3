//! Wakes an asynchronous reader.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The task that waits for something, if there is one.
#[derive(Default)]
pub(super) struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    /// Sets the task to wake. The caller must look again for what it waits for, which may have come before.
    pub(super) fn register(&self, context: &Context<'_>) {
        let mut slot = self.lock();
        match &mut *slot {
            Some(waker) => waker.clone_from(context.waker()),
            None => *slot = Some(context.waker().clone()),
        }
    }

    /// Wakes the task, once for each time that it registered.
    pub(super) fn wake(&self) {
        let waker = self.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
