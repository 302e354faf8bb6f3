//! The events of a request that its reader has not taken yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::event::{GenerationEvent, StreamEnd, StreamTimes, StreamUsage, TokenScore};
use super::wake::WakerSlot;
use crate::sample::SampledToken;
use siskin_scheduler::speculation::MAX_DRAFTS;

/// Tokens that a reader may be behind; then its request is paused.
const CAPACITY: usize = 256;
/// The most likely tokens per token for which memory is reserved; more allocate.
const MAX_TOP: usize = 20;
/// Bytes of text that are reserved for these tokens; longer texts allocate.
const TEXT_BYTES: usize = 16 * CAPACITY;

/// Written by the thread that runs the passes, read by the client's. Writing a token allocates nothing.
pub(super) struct EventQueue {
    events: Mutex<QueuedEvents>,
    /// The number of events, to look at without the lock.
    length: AtomicUsize,
    /// Woken by every event.
    pub reader: WakerSlot,
    /// The number of prompt tokens.
    pub prompt_tokens: usize,
    /// Those of them that were in the prefix cache, once the request has started.
    pub cached_tokens: AtomicUsize,
}

struct QueuedEvents {
    prompt: Option<Vec<TokenScore>>,
    tokens: VecDeque<QueuedToken>,
    /// The texts of these tokens, one after the other.
    text: VecDeque<u8>,
    /// Their most likely tokens.
    top: VecDeque<SampledToken>,
    end: Option<GenerationEvent>,
}

struct QueuedToken {
    token: SampledToken,
    text_length: usize,
    top_length: usize,
    time: Duration,
}

impl EventQueue {
    /// Creates an empty queue for a request of `prompt_tokens` tokens that reports the `top` most likely tokens.
    pub(super) fn new(prompt_tokens: usize, top: usize) -> Self {
        let events = QueuedEvents {
            prompt: None,
            // A pass may append several.
            tokens: VecDeque::with_capacity(CAPACITY + MAX_DRAFTS),
            text: VecDeque::with_capacity(TEXT_BYTES),
            top: VecDeque::with_capacity((CAPACITY + MAX_DRAFTS) * top.min(MAX_TOP)),
            end: None,
        };
        Self {
            events: Mutex::new(events),
            length: AtomicUsize::new(0),
            reader: WakerSlot::default(),
            prompt_tokens,
            cached_tokens: AtomicUsize::new(0),
        }
    }

    /// Sets the scores of the prompt, before any token.
    pub(super) fn set_prompt(&self, tokens: Vec<TokenScore>) {
        self.lock().prompt = Some(tokens);
        self.length.fetch_add(1, Ordering::Release);
        self.reader.wake();
    }

    /// Appends a token.
    pub(super) fn push(&self, token: SampledToken, text: &str, top: &[SampledToken], time: Duration) {
        let mut events = self.lock();
        events.tokens.push_back(QueuedToken { token, text_length: text.len(), top_length: top.len(), time });
        events.text.extend(text.as_bytes());
        events.top.extend(top);
        self.length.fetch_add(1, Ordering::Release);
        drop(events);
        self.reader.wake();
    }

    /// Appends the last event.
    pub(super) fn end(
        &self,
        text: &str,
        end_token: Option<Box<TokenScore>>,
        end: StreamEnd,
        usage: StreamUsage,
        times: StreamTimes,
    ) {
        let mut events = self.lock();
        events.end = Some(GenerationEvent::End { text: text.to_owned(), end_token, end, usage, times });
        self.length.fetch_add(1, Ordering::Release);
        drop(events);
        self.reader.wake();
    }

    /// Takes the next event.
    pub(super) fn pop(&self) -> Option<GenerationEvent> {
        let mut events = self.lock();
        if let Some(tokens) = events.prompt.take() {
            self.length.fetch_sub(1, Ordering::AcqRel);
            return Some(GenerationEvent::Prompt { tokens });
        }
        let event = match events.tokens.pop_front() {
            Some(QueuedToken { token, text_length, top_length, time }) => {
                let text: Vec<u8> = events.text.drain(..text_length).collect();
                let text = String::from_utf8(text).unwrap_or_default();
                let top = events.top.drain(..top_length).collect();
                GenerationEvent::Token { token, text, top, time }
            }
            None => events.end.take()?,
        };
        self.length.fetch_sub(1, Ordering::AcqRel);
        Some(event)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    pub(super) fn has_room(&self) -> bool {
        self.length.load(Ordering::Acquire) < CAPACITY
    }

    fn lock(&self) -> MutexGuard<'_, QueuedEvents> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
