//! Cancellation from another thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancels a session from any thread: a running call returns [`ErrorKind::Canceled`](siskin_format::ErrorKind::Canceled) at
/// the next step and leaves the session as it was before the call.
///
/// Each session has its own, forks included.
#[derive(Clone, Default)]
pub struct CancelHandle {
    flag: Arc<AtomicBool>,
    /// Called after a cancellation.
    notify: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle").field("is_canceled", &self.is_canceled()).finish_non_exhaustive()
    }
}

impl CancelHandle {
    /// Creates a handle in the not-canceled state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a handle that calls `notify` whenever it is canceled, on the thread that cancels.
    pub fn with_notify(notify: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { flag: Arc::default(), notify: Some(notify) }
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
        if let Some(notify) = &self.notify {
            notify();
        }
    }

    /// Resets a cancellation that no call has consumed yet.
    pub fn reset(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }
}
