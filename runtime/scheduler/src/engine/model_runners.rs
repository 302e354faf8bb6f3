//! The models of an engine, and which of them runs the next pass.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{CLOSE_LIMIT, RequestInbox, Shared};
use crate::sync::lock;
use siskin_backend::block_table::SequenceId;

/// A model of an engine, and what it has to do.
pub(super) trait ModelRunner: Send {
    /// Takes new requests, and ends those that were canceled or whose time is over. Returns whether any ended.
    fn collect(&mut self, now: Duration) -> bool;

    /// The same, unless another thread uses the model now, such as a session between passes.
    fn try_collect(&mut self, now: Duration);

    /// Returns what other threads need of it, if it is a decoder.
    fn inbox(&self) -> Option<&Arc<RequestInbox>> {
        None
    }

    /// Evicts cached prefixes until there is room for `tokens` more tokens, which is reserved for `sequence`, if there is
    /// one.
    fn make_room(&mut self, _tokens: usize, _sequence: Option<SequenceId>) {}

    /// Removes cached prefixes, and releases unused memory to the operating system.
    fn trim(&mut self) {}

    /// Returns whether there may be something to run.
    fn has_work(&self) -> bool;

    /// Returns whether all requests have ended, also those that it has not taken yet.
    fn is_idle(&self) -> bool;

    /// Returns whether nothing can add a request any more.
    fn is_gone(&self) -> bool {
        false
    }

    /// Returns whether a pass of its own runs on another thread, and no other may begin.
    fn is_computing(&self) -> bool {
        false
    }

    /// Returns the compute time of passes on other threads since the last call.
    fn take_external_time(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Returns whether another pass is likely to come at once.
    fn expects_pass(&self) -> bool {
        false
    }

    /// Waits for the expected pass.
    fn wait_for_pass(&mut self) {}

    /// Runs a forward pass. Returns whether there was anything to do.
    fn step(&mut self, now: Duration, clock: &dyn Fn() -> Duration) -> bool;

    /// Keeps what a later process can use, until `is_over`. No more requests come.
    fn close(&mut self, is_over: &dyn Fn() -> bool);
}

/// The models of an engine.
#[derive(Default)]
pub(super) struct ModelRunners {
    pub(super) list: Vec<RunningModel>,
    /// The models with work, reused from pass to pass.
    order: Vec<usize>,
}

pub(super) struct RunningModel {
    pub(super) runner: Box<dyn ModelRunner>,
    /// Its compute time.
    service: Duration,
}

impl RunningModel {
    /// Ends its requests, and keeps what a later process can use, within [`CLOSE_LIMIT`] after `start`.
    pub(super) fn close(&mut self, now: Duration, start: Instant) {
        self.runner.collect(now);
        self.runner.close(&|| start.elapsed() >= CLOSE_LIMIT);
    }

    /// Returns whether it is the decoder of one of `inboxes`.
    pub(super) fn is_of(&self, inboxes: &[Arc<RequestInbox>]) -> bool {
        self.runner.inbox().is_some_and(|own| inboxes.iter().any(|inbox| Arc::ptr_eq(own, inbox)))
    }
}

impl ModelRunners {
    /// Returns whether no pass runs or waits.
    pub(super) fn are_idle(&self) -> bool {
        self.list.iter().all(|model| model.runner.is_idle())
    }

    /// Gives all models the same compute time, while none of them waits: none has a claim to more.
    pub(super) fn equalize(&mut self) {
        self.list.iter_mut().for_each(|model| model.service += model.runner.take_external_time());
        let most = self.list.iter().map(|model| model.service).max().unwrap_or_default();
        self.list.iter_mut().for_each(|model| model.service = most);
    }

    /// Returns the runner of a decoder, unless it was removed.
    pub(super) fn of(&mut self, inbox: &Arc<RequestInbox>) -> Option<&mut dyn ModelRunner> {
        let mut of = self.list.iter_mut().filter(|model| model.is_of(std::slice::from_ref(inbox)));
        of.next().map(|model| &mut *model.runner as &mut dyn ModelRunner)
    }

    pub(super) fn take(&mut self, added: &Mutex<Vec<Box<dyn ModelRunner>>>) {
        let mut added = lock(added);
        self.list.extend(added.drain(..).map(|runner| RunningModel { runner, service: Duration::ZERO }));
    }

    /// Runs a pass of the model that had the least compute time, if that has anything to run, or else of the next one.
    pub(super) fn step(&mut self, shared: &Shared) -> bool {
        let Self { list, order } = self;
        list.retain(|model| !model.runner.is_gone());
        let now = shared.now();
        let has_ended = list.iter_mut().fold(false, |any, model| model.runner.collect(now) | any);
        list.iter_mut().for_each(|model| model.service += model.runner.take_external_time());
        if list.iter().any(|model| model.runner.is_computing()) {
            return has_ended;
        }
        wait_for_passes(list);
        order.clear();
        order.extend((0..list.len()).filter(|&model| list[model].runner.has_work()));
        order.sort_unstable_by_key(|&model| list[model].service);
        let least = order.first().map_or(Duration::ZERO, |&model| list[model].service);
        for model in list.iter_mut().filter(|model| !model.runner.has_work()) {
            // A model without requests does not save up its share.
            model.service = model.service.max(least);
        }
        let has_run = order.iter().any(|&model| {
            let RunningModel { runner, service } = &mut list[model];
            let start = shared.now();
            let has_run = runner.step(now, &|| shared.now());
            if has_run {
                *service += shared.now().saturating_sub(start);
            } else {
                // Nor does one whose requests are all paused.
                *service = (*service).max(least);
            }
            has_run
        });
        has_run || has_ended
    }
}

/// Waits for the next pass of the model with the least compute time, while others could run: it would lose its share if it
/// did not have that pass ready.
fn wait_for_passes(list: &mut [RunningModel]) {
    let least = list.iter().filter(|model| model.runner.has_work()).map(|model| model.service).min();
    let Some(least) = least else { return };
    let expected = list.iter_mut().filter(|model| model.service < least && model.runner.expects_pass());
    if let Some(next) = expected.min_by_key(|model| model.service) {
        next.runner.wait_for_pass();
    }
}
