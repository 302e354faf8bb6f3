//! When a pass may begin.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use siskin_format::{Error, Result};

/// Decides when contexts that share threads may run their passes.
pub trait PassScheduler: Send + Sync {
    /// Waits until a pass may begin, and returns true; false if `cancel` was set first.
    fn begin(&self, cancel: &AtomicBool) -> bool;

    /// Ends the pass that has begun, which has taken `elapsed`.
    fn end(&self, elapsed: Duration);
}

/// A pass that has begun; dropping it ends the pass.
pub(super) struct ScheduledPass<'s> {
    /// `None`: nothing decides.
    scheduler: Option<&'s dyn PassScheduler>,
    start: Instant,
}

impl<'s> ScheduledPass<'s> {
    pub(super) fn begin(scheduler: Option<&'s dyn PassScheduler>, cancel: &AtomicBool) -> Result<Self> {
        if scheduler.is_some_and(|scheduler| !scheduler.begin(cancel)) {
            return Err(Error::canceled("pass"));
        }
        Ok(Self { scheduler, start: Instant::now() })
    }
}

impl Drop for ScheduledPass<'_> {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler {
            scheduler.end(self.start.elapsed());
        }
    }
}
