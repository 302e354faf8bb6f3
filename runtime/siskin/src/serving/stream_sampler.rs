//! From the logits of a request to its events: sampler, detokenizer, stop strings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::event::{StreamEnd, StreamTimes, StreamUsage, TokenScore};
use super::event_queue::EventQueue;
use super::prompt_scores::PromptScorer;
use crate::model::Model;
use crate::sample::{SampledToken, Sampler};
use crate::session::FinishReason;
use crate::text::TextStream;
use crate::{Error, ErrorKind, Result};
use siskin_scheduler::engine::{RequestOutcome, RequestSampler, Sampled};
use siskin_scheduler::speculation::{DraftBudget, Proposer};

pub(super) struct StreamSampler {
    pub model: Model,
    pub sampler: Sampler,
    pub stream: TextStream,
    /// Special tokens that have a text.
    pub visible_tokens: Vec<u32>,
    pub proposer: Option<Box<dyn Proposer>>,
    /// The scores of the prompt until they are delivered; `None`: it is not scored.
    pub prompt: Option<PromptScorer>,
    /// Nothing is generated.
    pub only_scores: bool,
    pub queue: Arc<EventQueue>,
    /// The bytes of the last token.
    pub bytes: Vec<u8>,
    pub usage: StreamUsage,
    pub submitted: Instant,
    pub times: StreamTimes,
    /// The end token, for the last event.
    pub end_token: Option<Box<TokenScore>>,
    pub has_ended: bool,
}

impl StreamSampler {
    /// Appends the last event, with the text that was held back.
    fn end(&mut self, end: StreamEnd) {
        self.has_ended = true;
        let times = StreamTimes { end: self.submitted.elapsed(), ..self.times };
        let end_token = self.end_token.take();
        self.queue.end(self.stream.finish().text, end_token, end, self.usage, times);
    }

    /// Appends the event of a token. Returns whether it completes a stop string.
    fn deliver(&mut self, token: SampledToken, time: Duration) -> Result<bool> {
        self.sampler.accept(token.id);
        self.usage.generated_tokens += 1;
        let is_visible = self.visible_tokens.contains(&token.id);
        self.model.token_bytes(token.id, is_visible, &mut self.bytes)?;
        let delta = self.stream.push(&self.bytes);
        self.queue.push(token, delta.text, self.sampler.top(), time);
        Ok(delta.stopped)
    }

    /// Returns what follows a token that was delivered.
    fn outcome(&mut self, token: SampledToken, is_stopped: bool) -> Result<Sampled> {
        let reason = match is_stopped {
            true => FinishReason::Stop,
            false if self.sampler.is_complete()? => FinishReason::Eos,
            false => return Ok(Sampled::Token(token.id)),
        };
        self.end(StreamEnd::Finished(reason));
        Ok(Sampled::End)
    }
}

impl RequestSampler for StreamSampler {
    fn start(&mut self, cached_tokens: usize) {
        self.usage.cached_tokens = cached_tokens;
        self.queue.cached_tokens.store(cached_tokens, Ordering::Relaxed);
        self.times.start = Some(self.submitted.elapsed());
    }

    fn score(&mut self, index: usize, token: u32, logits: &[f32]) -> Result<()> {
        if let Some(prompt) = &mut self.prompt {
            prompt.score(&self.model, index, token, &logits[..self.sampler.vocabulary_size()]);
        }
        Ok(())
    }

    fn sample(&mut self, logits: &[f32]) -> Result<Sampled> {
        if let Some(prompt) = self.prompt.take() {
            self.queue.set_prompt(prompt.finish());
        }
        if self.only_scores {
            self.end(StreamEnd::Finished(FinishReason::Length));
            return Ok(Sampled::End);
        }
        let token = self.sampler.sample(&logits[..self.sampler.vocabulary_size()])?;
        let time = self.submitted.elapsed();
        self.times.first_token.get_or_insert(time);
        if self.model.end_ids().contains(&token.id) {
            if !token.log_probability.is_nan() {
                self.end_token = Some(Box::new(TokenScore { token, top: self.sampler.top().to_vec() }));
            }
            self.end(StreamEnd::Finished(FinishReason::Eos));
            return Ok(Sampled::End);
        }
        let is_stopped = self.deliver(token, time)?;
        self.outcome(token, is_stopped)
    }

    fn next_forced(&mut self) -> Result<Option<Sampled>> {
        // Log-probabilities need logits, and the tokens are the same.
        let options = self.sampler.options();
        if options.log_probabilities || options.top_log_probabilities > 0 {
            return Ok(None);
        }
        let Some(id) = self.sampler.next_forced()? else { return Ok(None) };
        if self.model.end_ids().contains(&id) {
            self.end(StreamEnd::Finished(FinishReason::Eos));
            return Ok(Some(Sampled::End));
        }
        let token = SampledToken { id, log_probability: f32::NAN };
        let is_stopped = self.deliver(token, self.submitted.elapsed())?;
        self.outcome(token, is_stopped).map(Some)
    }

    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        if let Some(proposer) = &mut self.proposer {
            proposer.propose(tokens, budget, drafts);
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
            RequestOutcome::ReaderTooSlow => StreamEnd::ReaderTooSlow,
            RequestOutcome::DeadlineExceeded => StreamEnd::DeadlineExceeded,
            RequestOutcome::Failed(error) => StreamEnd::Failed(error),
        });
    }
}

impl Drop for StreamSampler {
    /// A reader never waits for a request that is gone.
    fn drop(&mut self) {
        if !self.has_ended {
            let message = "internal error, please report it; the request was lost";
            self.end(StreamEnd::Failed(Error::new(ErrorKind::State, "engine", message)));
        }
    }
}
