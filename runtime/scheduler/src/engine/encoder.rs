//! Encoders in an engine: batches of whole texts, which take turns with the passes of decoders.

use std::sync::Weak;
use std::time::Duration;

use super::ModelRunner;

/// The texts of an encoder. Clients add to it at any time; the engine decides when it runs a batch.
pub trait BatchQueue: Send + Sync {
    /// Returns whether no text waits.
    fn is_empty(&self) -> bool;

    /// Runs one batch of the texts that wait, and delivers their results. Must not panic.
    fn run_batch(&self);

    /// Releases memory that the next batch allocates again.
    fn trim(&self);

    /// Rejects further texts.
    fn close(&self);

    /// Cancels all texts that wait.
    fn cancel_all(&self);
}

pub(super) struct EncoderRunner {
    pub queue: Weak<dyn BatchQueue>,
}

impl ModelRunner for EncoderRunner {
    fn collect(&mut self, _: Duration) -> bool {
        false
    }

    fn try_collect(&mut self, _: Duration) {}

    fn has_work(&self) -> bool {
        self.queue.upgrade().is_some_and(|queue| !queue.is_empty())
    }

    fn is_idle(&self) -> bool {
        !self.has_work()
    }

    fn is_gone(&self) -> bool {
        self.queue.strong_count() == 0
    }

    fn trim(&mut self) {
        self.queue.upgrade().inspect(|queue| queue.trim());
    }

    fn close(&mut self, _: &dyn Fn() -> bool) {}

    fn step(&mut self, _: Duration, _: &dyn Fn() -> Duration) -> bool {
        let queue = self.queue.upgrade().filter(|queue| !queue.is_empty());
        queue.inspect(|queue| queue.run_batch()).is_some()
    }
}
