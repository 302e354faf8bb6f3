//! The usage in streamed responses.

use std::collections::VecDeque;

use serde_json::{Value, json};
use siskin::serving::StreamUsage;

use crate::error::{ApiError, ErrorFormat};
use crate::generation::{ChoiceEvent, Choices, ChunkRenderer, Streaming};

/// Returns the `usage` object.
pub(super) fn usage_object(usage: StreamUsage) -> Value {
    let StreamUsage { prompt_tokens, cached_tokens, generated_tokens } = usage;
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": generated_tokens,
        "total_tokens": prompt_tokens + generated_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    })
}

/// Turns events into chunks with choices.
pub(super) trait ChoiceRenderer: Send {
    /// Appends the chunks of an event; none if it has nothing to tell.
    fn render(&mut self, choices: &Choices, index: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>);

    /// Returns a chunk without choices, for the usage.
    fn empty_chunk(&self, choices: &Choices) -> Value;
}

/// Chunks that end with one with the usage, if the request wants it.
pub(super) struct UsageChunks<R> {
    renderer: R,
    streaming: Streaming,
}

impl<R: ChoiceRenderer> UsageChunks<R> {
    /// Creates a renderer of a stream that begins with `first`.
    pub(super) fn new(
        renderer: R,
        streaming: Streaming,
        choices: &Choices,
        first: &mut VecDeque<Value>,
    ) -> Self {
        let own = Self { renderer, streaming };
        own.mark(choices, first, 0);
        own
    }

    /// Sets the usage of the chunks from `start` on, if that of the last one is not null: to null, or to the usage so far.
    fn mark(&self, choices: &Choices, chunks: &mut VecDeque<Value>, start: usize) {
        if self.streaming.include_usage {
            let usage = match self.streaming.has_continuous_usage {
                true => usage_object(choices.usage()),
                false => Value::Null,
            };
            chunks.iter_mut().skip(start).for_each(|chunk| chunk["usage"] = usage.clone());
        }
    }
}

impl<R: ChoiceRenderer> ChunkRenderer for UsageChunks<R> {
    fn render(&mut self, choices: &Choices, index: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let start = chunks.len();
        self.renderer.render(choices, index, event, chunks);
        self.mark(choices, chunks, start);
    }

    fn finish(&mut self, choices: &Choices, chunks: &mut VecDeque<Value>) {
        if self.streaming.include_usage {
            let mut chunk = self.renderer.empty_chunk(choices);
            chunk["usage"] = usage_object(choices.usage());
            chunks.push_back(chunk);
        }
    }

    fn fail(&mut self, _: &Choices, error: &ApiError, chunks: &mut VecDeque<Value>) {
        chunks.push_back(error.body_in(ErrorFormat::OpenAi));
    }
}
