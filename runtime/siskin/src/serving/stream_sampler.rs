//! From the logits of a request to its events: sampler, detokenizer, stop strings.

use std::sync::Arc;
use std::time::Instant;

use super::event::{StreamEnd, StreamTimes, StreamUsage};
use super::event_queue::EventQueue;
use crate::Result;
use crate::model::Model;
use crate::sample::Sampler;
use crate::session::FinishReason;
use crate::text::TextStream;
use siskin_scheduler::engine::{RequestOutcome, RequestSampler, Sampled};
use siskin_scheduler::speculation::Proposer;

pub(super) struct StreamSampler {
    pub model: Model,
    pub sampler: Sampler,
    pub stream: TextStream,
    pub proposer: Option<Box<dyn Proposer>>,
    pub queue: Arc<EventQueue>,
    /// The bytes of the last token.
    pub bytes: Vec<u8>,
    pub usage: StreamUsage,
    pub submitted: Instant,
    pub times: StreamTimes,
}

impl StreamSampler {
    /// Appends the last event, with the text that was held back.
    fn end(&mut self, end: StreamEnd) {
        let times = StreamTimes { end: self.submitted.elapsed(), ..self.times };
        self.queue.end(self.stream.finish().text, end, self.usage, times);
    }
}

impl RequestSampler for StreamSampler {
    fn start(&mut self, cached_tokens: usize) {
        self.usage.cached_tokens = cached_tokens;
        self.times.start = Some(self.submitted.elapsed());
    }

    fn sample(&mut self, logits: &[f32]) -> Result<Sampled> {
        let token = self.sampler.sample(&logits[..self.sampler.vocabulary_size()])?;
        if self.times.first_token.is_none() {
            self.times.first_token = Some(self.submitted.elapsed());
        }
        if self.model.end_ids().contains(&token.id) {
            self.end(StreamEnd::Finished(FinishReason::Eos));
            return Ok(Sampled::End);
        }
        self.sampler.accept(token.id);
        self.usage.generated_tokens += 1;
        self.model.token_bytes(token.id, &mut self.bytes)?;
        let delta = self.stream.push(&self.bytes);
        self.queue.push(token, delta.text, self.sampler.top());
        if delta.stopped {
            self.end(StreamEnd::Finished(FinishReason::Stop));
            return Ok(Sampled::End);
        }
        Ok(Sampled::Token(token.id))
    }

    fn propose(&mut self, tokens: &[u32], limit: usize, drafts: &mut Vec<u32>) {
        if let Some(proposer) = &mut self.proposer {
            proposer.propose(tokens, limit, drafts);
        }
    }

    fn has_room(&self) -> bool {
        self.queue.has_room()
    }

    fn finish(&mut self, outcome: RequestOutcome) {
        self.end(match outcome {
            RequestOutcome::Length => StreamEnd::Finished(FinishReason::Length),
            RequestOutcome::ContextFull => StreamEnd::Finished(FinishReason::Context),
            RequestOutcome::Canceled => StreamEnd::Canceled,
            RequestOutcome::DeadlineExceeded => StreamEnd::DeadlineExceeded,
            RequestOutcome::Failed(error) => StreamEnd::Failed(error),
        });
    }
}
