//! Sessions on an engine: the sequence of a session is one of its model's context, and the tokens that it appends are
//! rows of the passes that the model's requests share.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::decoder::Submission;
use super::sampler::{RequestOutcome, RequestSampler, Sampled};
use super::{RequestInbox, Shared};
use crate::request::{CacheSalt, RequestSpec};
use crate::sync::lock;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::Context;
use siskin_backend::fair_mutex::FairMutex;
use siskin_format::{Error, ErrorKind, Result};

/// Runs the passes of a session.
pub struct SessionPasses {
    shared: Arc<Shared>,
    inbox: Arc<RequestInbox>,
    slot: Arc<PassSlot>,
}

/// Where a pass leaves its result, reused from pass to pass.
#[derive(Default)]
struct PassSlot {
    is_done: AtomicBool,
    result: Mutex<PassResult>,
}

#[derive(Default)]
struct PassResult {
    /// The logits of the last token.
    logits: Vec<f32>,
    /// Why there are none.
    failure: Option<RequestOutcome>,
}

/// Leaves the logits of the last token in the slot, and generates nothing.
struct SlotSampler {
    slot: Arc<PassSlot>,
}

impl RequestSampler for SlotSampler {
    fn sample(&mut self, logits: &[f32]) -> Result<Sampled> {
        let mut result = lock(&self.slot.result);
        result.logits.clear();
        result.logits.extend_from_slice(logits);
        drop(result);
        self.slot.is_done.store(true, Ordering::Release);
        Ok(Sampled::End)
    }

    fn finish(&mut self, outcome: RequestOutcome) {
        lock(&self.slot.result).failure = Some(outcome);
        self.slot.is_done.store(true, Ordering::Release);
    }
}

impl SessionPasses {
    pub(super) fn new(shared: Arc<Shared>, inbox: Arc<RequestInbox>) -> Self {
        Self { shared, inbox, slot: Arc::default() }
    }

    /// Returns the context that has the sequence. While it is locked, no passes run.
    pub fn context(&self) -> &Arc<FairMutex<Context>> {
        &self.inbox.context
    }

    /// Removes cached prefixes until there is room for `tokens` more tokens, for passes that do not go through the engine.
    /// The context must not be locked by this thread.
    pub fn make_room(&self, tokens: usize) {
        let mut runners = self.shared.runners();
        runners.list.iter_mut().for_each(|model| model.runner.make_room(&self.inbox, tokens));
        drop(runners);
        self.shared.notify();
    }

    /// Returns what runs the passes of another session, such as a fork.
    pub fn another(&self) -> Self {
        Self::new(Arc::clone(&self.shared), Arc::clone(&self.inbox))
    }

    /// Returns a handle that cancels passes of the session: at once if the running pass is for it alone, otherwise after
    /// that.
    pub fn cancel_handle(&self) -> CancelHandle {
        let (shared, inbox) = (Arc::downgrade(&self.shared), Arc::downgrade(&self.inbox));
        CancelHandle::with_notify(Arc::new(move || {
            if let Some((shared, inbox)) = shared.upgrade().zip(inbox.upgrade()) {
                inbox.abort_pass(|_| false);
                shared.collect();
            }
        }))
    }

    /// Appends the tokens of `spec` to its sequence, and stores the logits of the last one in `logits`. The context must not
    /// be locked by this thread.
    ///
    /// # Errors
    /// [`ErrorKind::Canceled`] if `cancel` was canceled, which is then reset; [`ErrorKind::Memory`] if the KV cache has no
    /// room; [`ErrorKind::State`] if the sequence cannot be relied on any more. Some of the tokens may have been appended.
    pub fn append(&self, spec: RequestSpec, cancel: &CancelHandle, logits: &mut [f32]) -> Result<()> {
        spec.check(&self.inbox.limits)?;
        let slot = &self.slot;
        slot.is_done.store(false, Ordering::Relaxed);
        lock(&slot.result).failure = None;
        self.inbox.waiting.fetch_add(1, Ordering::AcqRel);
        self.inbox.push(Submission {
            spec,
            sampler: Box::new(SlotSampler { slot: Arc::clone(slot) }),
            salt: CacheSalt::default(),
            stored: None,
            cancel: cancel.clone(),
            arrival: self.shared.now(),
        })?;
        self.shared.notify();
        self.shared.advance(&|| slot.is_done.load(Ordering::Acquire));
        let mut result = lock(&slot.result);
        match result.failure.take() {
            None => {
                logits.copy_from_slice(&result.logits);
                Ok(())
            }
            Some(RequestOutcome::Canceled) => {
                cancel.reset();
                Err(Error::canceled("session"))
            }
            Some(RequestOutcome::Failed(error)) => Err(error),
            Some(outcome) => Err(Error::new(ErrorKind::State, "session", format!("ended by {outcome:?}"))),
        }
    }
}
