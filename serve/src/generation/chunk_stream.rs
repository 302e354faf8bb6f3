//! Streamed responses: the events of choices, as chunks of an API.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use serde_json::Value;

use super::choices::{ChoiceEvent, Choices};
use crate::error::ApiError;
use crate::event_stream::EventSource;

/// Turns events into the chunks of a streamed response.
pub(crate) trait ChunkRenderer: Send {
    /// Appends the chunks of an event; none if it has nothing to tell.
    fn render(&mut self, choices: &Choices, index: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>);

    /// Appends the chunks after the last event.
    fn finish(&mut self, _choices: &Choices, _chunks: &mut VecDeque<Value>) {}

    /// Appends the chunks of an error, which ends the stream.
    fn fail(&mut self, choices: &Choices, error: &ApiError, chunks: &mut VecDeque<Value>);
}

/// A streamed response.
pub(crate) struct ChunkStream<R> {
    choices: Choices,
    renderer: R,
    /// Chunks that come before the next event.
    chunks: VecDeque<Value>,
    is_over: bool,
}

impl<R: ChunkRenderer> ChunkStream<R> {
    /// Creates a stream that begins with `chunks`.
    pub(crate) fn new(choices: Choices, renderer: R, chunks: VecDeque<Value>) -> Self {
        Self { choices, renderer, chunks, is_over: false }
    }
}

impl<R: ChunkRenderer> EventSource for ChunkStream<R> {
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Value>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Poll::Ready(Some(chunk));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.choices.poll_event(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((index, event)))) => {
                    self.renderer.render(&self.choices, index, event, &mut self.chunks);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.renderer.fail(&self.choices, &error, &mut self.chunks);
                    self.is_over = true;
                }
                Poll::Ready(None) => {
                    self.renderer.finish(&self.choices, &mut self.chunks);
                    self.is_over = true;
                }
            }
        }
    }
}
