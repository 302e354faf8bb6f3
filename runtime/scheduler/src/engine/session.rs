//! Sessions on an engine: the sequence of a session is one of its model's context, and the tokens that it appends are
//! rows of the passes that the model's requests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::decoder::{Submission, internal_error};
use super::sampler::{RequestOutcome, RequestSampler, Sampled};
use super::{RequestInbox, Shared};
use crate::request::{CacheSalt, RequestSpec};
use crate::sync::lock;
use siskin_backend::block_table::SequenceId;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::Context;
use siskin_backend::fair_mutex::FairMutex;
use siskin_format::{Error, ErrorKind, Result};

/// A session's handle on its engine.
pub struct SessionHandle {
    shared: Arc<Shared>,
    inbox: Arc<RequestInbox>,
    slot: Arc<PassSlot>,
}

/// Where a pass leaves its result, reused from call to call.
#[derive(Default)]
struct PassSlot {
    is_done: AtomicBool,
    result: Mutex<PassResult>,
}

#[derive(Default)]
struct PassResult {
    /// Which call it belongs to.
    call: u64,
    /// The session's logits, lent for the call: those of the last token after it.
    logits: Vec<f32>,
    /// Why there are none.
    failure: Option<RequestOutcome>,
}

/// Leaves the logits of the last token in the slot, and generates nothing.
struct SlotSampler {
    slot: Arc<PassSlot>,
    call: u64,
}

impl SlotSampler {
    /// Completes the call unless that has happened.
    fn complete(&self, complete: impl FnOnce(&mut PassResult)) {
        let mut result = lock(&self.slot.result);
        if result.call == self.call && !self.slot.is_done.load(Ordering::Relaxed) {
            complete(&mut result);
            self.slot.is_done.store(true, Ordering::Release);
        }
    }
}

impl RequestSampler for SlotSampler {
    fn sample(&mut self, logits: &[f32]) -> Result<Sampled> {
        self.complete(|result| {
            result.logits.clear();
            result.logits.extend_from_slice(logits);
        });
        Ok(Sampled::End)
    }

    fn finish(&mut self, outcome: RequestOutcome) {
        self.complete(|result| result.failure = Some(outcome));
    }
}

impl Drop for SlotSampler {
    fn drop(&mut self) {
        // Only after a panic.
        self.finish(RequestOutcome::Failed(internal_error()));
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.inbox.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SessionHandle {
    pub(super) fn new(shared: Arc<Shared>, inbox: Arc<RequestInbox>) -> Result<Self> {
        let limit = inbox.options.max_sessions;
        let enters = |sessions: usize| (sessions < limit).then_some(sessions + 1);
        if inbox.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, enters).is_err() {
            let message = format!(
                "the model has {limit} sessions; close one, or add the model with more `max_sessions`"
            );
            return Err(Error::new(ErrorKind::Overloaded, "sessions", message));
        }
        Ok(Self { shared, inbox, slot: Arc::default() })
    }

    /// Returns the context that has the sequence. While it is locked, no passes run.
    pub fn context(&self) -> &Arc<FairMutex<Context>> {
        &self.inbox.context
    }

    /// Evicts cached prefixes until there is room for `tokens` more tokens, for passes that do not go through the engine, and
    /// reserves it for a sequence, if there is one. The context must not be locked by this thread.
    pub fn make_room(&self, tokens: usize, sequence: Option<SequenceId>) {
        let mut runners = self.shared.runners();
        if let Some(runner) = runners.of(&self.inbox) {
            runner.make_room(tokens, sequence);
        }
        drop(runners);
        self.shared.notify();
    }

    /// Removes a sequence: at once unless the context is locked, as while a pass runs; then afterwards.
    pub fn remove(&self, sequence: SequenceId) {
        match self.inbox.context.try_lock() {
            Some(mut context) => context.remove(sequence),
            None => lock(&self.inbox.removed).push(sequence),
        }
        self.shared.notify();
    }

    /// Returns a handle for a fork of the session.
    ///
    /// # Errors
    /// As [`TokenEngine::session_handle`](super::TokenEngine::session_handle).
    pub fn for_fork(&self) -> Result<Self> {
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
    pub fn append(&self, spec: RequestSpec, cancel: &CancelHandle, logits: &mut Vec<f32>) -> Result<()> {
        spec.check(&self.inbox.limits)?;
        let sampler = self.begin(logits);
        let submission = Submission {
            spec,
            sampler: Box::new(sampler),
            salt: CacheSalt::default(),
            stored: None,
            cancel: cancel.clone(),
            arrival: self.shared.now(),
        };
        let pushed = self.inbox.push(submission, &self.inbox.is_closed);
        if pushed.is_ok() {
            self.shared.notify();
            self.shared.advance(&|| self.slot.is_done.load(Ordering::Acquire));
        }
        let failure = self.end(logits);
        pushed?;
        match failure {
            None => Ok(()),
            Some(RequestOutcome::Canceled) => {
                cancel.reset();
                Err(Error::canceled("session"))
            }
            Some(RequestOutcome::Failed(error)) => Err(error),
            Some(outcome) => Err(Error::new(ErrorKind::State, "session", format!("ended by {outcome:?}"))),
        }
    }

    /// Begins a call, whose sampler writes to `logits`.
    fn begin(&self, logits: &mut Vec<f32>) -> SlotSampler {
        let mut result = lock(&self.slot.result);
        result.call += 1;
        result.failure = None;
        std::mem::swap(&mut result.logits, logits);
        self.slot.is_done.store(false, Ordering::Relaxed);
        SlotSampler { slot: Arc::clone(&self.slot), call: result.call }
    }

    /// Returns `logits` after a call, and why it failed.
    fn end(&self, logits: &mut Vec<f32>) -> Option<RequestOutcome> {
        let mut result = lock(&self.slot.result);
        std::mem::swap(&mut result.logits, logits);
        result.failure.take()
    }
}
