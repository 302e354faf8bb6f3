//! The events of a request, for its reader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use super::FEATURE;
use super::event::{GenerationEvent, StreamEnd, StreamTimes, StreamUsage};
use super::event_queue::EventQueue;
use crate::{Error, ErrorKind, Result};
use siskin_scheduler::engine::RequestHandle;

/// The events of a request, in order. Dropping it cancels the request.
pub struct GenerationStream {
    queue: Arc<EventQueue>,
    handle: RequestHandle,
    submitted: Instant,
    generated_tokens: usize,
    has_ended: bool,
}

impl GenerationStream {
    pub(super) fn new(queue: Arc<EventQueue>, handle: RequestHandle, submitted: Instant) -> Self {
        Self { queue, handle, submitted, generated_tokens: 0, has_ended: false }
    }

    /// Returns the next event; `None` after the last. Waits for it, and runs passes for all requests meanwhile unless the
    /// engine has a thread of its own.
    pub fn next_event(&mut self) -> Option<GenerationEvent> {
        if self.has_ended || !FEATURE.is_there {
            return None;
        }
        let event = self.queue.pop().or_else(|| {
            let is_ready = || !self.queue.is_empty() || self.handle.is_canceled();
            self.handle.wait_until(&is_ready);
            self.queue.pop()
        });
        // Without waiting for the pass that is to end it.
        Some(self.take(event.unwrap_or_else(|| self.canceled())))
    }

    /// Returns the next event if it is there, `None` after the last; else wakes the task of `context` when it is.
    ///
    /// Only for engines with a thread of their own ([`Drive::Thread`](super::Drive::Thread)): it runs no passes.
    pub fn poll_event(&mut self, context: &Context<'_>) -> Poll<Option<GenerationEvent>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.queue.reader.register(context);
        match self.queue.pop() {
            Some(event) => Poll::Ready(Some(self.take(event))),
            None if self.handle.is_canceled() => {
                let event = self.canceled();
                Poll::Ready(Some(self.take(event)))
            }
            None => Poll::Pending,
        }
    }

    /// The last event of a request that was canceled while a pass runs.
    fn canceled(&self) -> GenerationEvent {
        GenerationEvent::End {
            text: String::new(),
            end_token: None,
            end: StreamEnd::Canceled,
            usage: StreamUsage {
                prompt_tokens: self.queue.prompt_tokens,
                generated_tokens: self.generated_tokens,
                cached_tokens: self.queue.cached_tokens.load(Ordering::Relaxed),
            },
            times: StreamTimes { end: self.submitted.elapsed(), ..StreamTimes::default() },
        }
    }

    fn take(&mut self, event: GenerationEvent) -> GenerationEvent {
        match &event {
            GenerationEvent::Prompt { .. } => {}
            GenerationEvent::Token { .. } => self.generated_tokens += 1,
            GenerationEvent::End { .. } => self.has_ended = true,
        }
        event
    }

    /// Returns the number of tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.queue.prompt_tokens
    }

    /// Returns whether the next event is there.
    pub fn has_events(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Waits for the end and returns the text.
    ///
    /// # Errors
    /// That of the request; [`ErrorKind::Canceled`] if it was canceled or its deadline passed.
    pub fn text(mut self) -> Result<String> {
        let mut all = String::new();
        while let Some(event) = self.next_event() {
            match event {
                GenerationEvent::Prompt { .. } => {}
                GenerationEvent::Token { text, .. } => all.push_str(&text),
                GenerationEvent::End { text, end, .. } => {
                    all.push_str(&text);
                    match end {
                        StreamEnd::Finished(_) => {}
                        StreamEnd::Canceled => return Err(Error::canceled("request")),
                        StreamEnd::ReaderTooSlow => {
                            let message = "its events were not read for as long as `pause_limit` allows";
                            return Err(Error::new(ErrorKind::Canceled, "request", message));
                        }
                        StreamEnd::DeadlineExceeded => {
                            return Err(Error::new(ErrorKind::Canceled, "request", "its deadline passed"));
                        }
                        StreamEnd::Failed(error) => return Err(error),
                    }
                }
            }
        }
        Ok(all)
    }

    /// Cancels the request. Events that are in the queue come first, then the last, at once.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Returns a handle that cancels the request from another thread.
    pub fn handle(&self) -> RequestHandle {
        self.handle.clone()
    }
}

impl Iterator for GenerationStream {
    type Item = GenerationEvent;

    fn next(&mut self) -> Option<GenerationEvent> {
        self.next_event()
    }
}

impl Drop for GenerationStream {
    fn drop(&mut self) {
        if !self.has_ended {
            self.handle.cancel();
        }
    }
}
