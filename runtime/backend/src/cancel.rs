//! Cancellation from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancels a session from any thread: a running call returns [`ErrorKind::Canceled`](siskin_format::ErrorKind::Canceled) at
/// the next step and leaves the session as it was before the call.
///
/// Each session has its own, forks included.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    flag: Arc<AtomicBool>,
}

impl CancelHandle {
    /// Creates a handle in the not-canceled state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the flag that passes look at.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }

    /// Returns whether it was canceled.
    pub fn is_canceled(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Cancels the running call, or the next one. What this thread did before is visible to one that sees it.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Release);
    }

    /// Resets a cancellation that no call has consumed yet.
    pub fn reset(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }
}
