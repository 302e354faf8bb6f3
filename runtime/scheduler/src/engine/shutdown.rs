//! The end of requests, of models and of an engine.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{ModelId, RequestInbox, TokenEngine, unknown_model};
#[cfg(doc)]
use crate::prefix_cache::PrefixStore;
use crate::sync::lock;
#[cfg(doc)]
use siskin_format::ErrorKind;
use siskin_format::Result;

impl TokenEngine {
    /// Rejects further requests, and waits until all others have ended; those that have not after `limit` are canceled.
    /// Then cached prefixes are written to the [`PrefixStore`]s of the models, for about ten seconds at most, and removed.
    pub fn drain(&self, limit: Duration) {
        let inboxes: Vec<_> = lock(&self.shared.inboxes).iter().flatten().cloned().collect();
        let queues: Vec<_> = lock(&self.shared.queues).iter().filter_map(Weak::upgrade).collect();
        queues.iter().for_each(|queue| queue.close());
        self.end_requests(&inboxes, limit, &|| queues.iter().all(|queue| queue.is_empty()));
        queues.iter().for_each(|queue| queue.cancel_all());
        // After the pass that runs.
        let mut runners = self.shared.runners();
        let (now, start) = (self.shared.now(), Instant::now());
        runners.list.iter_mut().for_each(|running| running.close(now, start));
        drop(runners);
        self.shared.notify();
    }

    /// Removes a model, like [`TokenEngine::drain`] for its requests only. Its memory is freed when its last request or session
    /// handle is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the model was removed before.
    pub fn remove_model(&self, model: ModelId, limit: Duration) -> Result<()> {
        // From now on it is unknown, also to a second call.
        let removed = lock(&self.shared.inboxes).get_mut(model.0).and_then(Option::take);
        let inbox = [removed.ok_or_else(unknown_model)?];
        self.end_requests(&inbox, limit, &|| true);
        let (now, mut runners) = (self.shared.now(), self.shared.runners());
        let at = runners.list.iter().position(|running| running.is_of(&inbox));
        let running = at.map(|at| runners.list.swap_remove(at));
        // Others run while its prefixes are written.
        drop(runners);
        if let Some(mut running) = running {
            running.close(now, Instant::now());
        }
        self.shared.notify();
        Ok(())
    }

    /// Rejects further requests of models, and waits until the others have ended and `also`; those that have not after
    /// `limit` are canceled.
    fn end_requests(&self, inboxes: &[Arc<RequestInbox>], limit: Duration, also: &dyn Fn() -> bool) {
        inboxes.iter().for_each(|inbox| inbox.is_draining.store(true, Ordering::Release));
        let start = Instant::now();
        // Waits for the running pass: while other models are busy, there is always one.
        let are_idle = || {
            let runners = self.shared.runners();
            runners.list.iter().filter(|model| model.is_of(inboxes)).all(|model| model.runner.is_idle())
        };
        self.shared.advance(&|| start.elapsed() >= limit || (are_idle() && also()));
        for inbox in inboxes {
            inbox.is_closed.store(true, Ordering::Release);
            inbox.abort_pass(|_| true);
        }
    }
}
