//! The choices of a request: one for each choice.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use serde_json::{Value, json};
use siskin::serving::{GenerationEvent, GenerationRequest, GenerationStream, StreamEnd, StreamUsage};
use siskin::{Error, ErrorKind, FinishReason};

use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::state::ServerState;

/// RunningChoices whose events come in any order, and what all of them used.
pub(super) struct RunningChoices {
    model: Arc<RegisteredModel>,
    choices: Vec<Choice>,
    usage: StreamUsage,
}

struct Choice {
    stream: GenerationStream,
    last_token: Option<Instant>,
    has_ended: bool,
}

/// An event of a choice.
pub(super) enum ChoiceEvent {
    Token { token: siskin::sample::SampledToken, text: String, top: Vec<siskin::sample::SampledToken> },
    End { text: String, finish_reason: &'static str },
}

impl RunningChoices {
    /// Submits requests, whose prompts are tokenized on another thread.
    pub(super) async fn submit(
        state: &Arc<ServerState>,
        model: &Arc<RegisteredModel>,
        requests: Vec<GenerationRequest>,
    ) -> Result<Self, ApiError> {
        if state.is_shutting_down() {
            return Err(ApiError::shutting_down());
        }
        let id = model.decoder()?;
        let engine = state.models.engine().clone();
        let submit = move || {
            // Those that were submitted before one that fails are dropped, which cancels them.
            requests.into_iter().map(|request| engine.submit(id, request)).collect::<Result<Vec<_>, _>>()
        };
        let submitted = tokio::task::spawn_blocking(submit).await;
        let streams = submitted.map_err(|_| ApiError::internal("internal error, please report it"))?;
        let streams = streams.inspect_err(|error: &Error| {
            if error.kind() == ErrorKind::Overloaded {
                model.metrics.reject();
            }
        })?;
        let choice = |stream| Choice { stream, last_token: None, has_ended: false };
        Ok(Self {
            model: Arc::clone(model),
            choices: streams.into_iter().map(choice).collect(),
            usage: StreamUsage::default(),
        })
    }

    pub(super) fn model(&self) -> &RegisteredModel {
        &self.model
    }

    pub(super) fn choice_count(&self) -> usize {
        self.choices.len()
    }

    /// Returns the next event with the index of its choice; `None` when all have ended.
    pub(super) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(usize, ChoiceEvent), ApiError>>> {
        for (index, choice) in self.choices.iter_mut().enumerate().filter(|(_, choice)| !choice.has_ended) {
            let Poll::Ready(event) = choice.stream.poll_event(context) else { continue };
            let Some(event) = event else { continue };
            let event = match event {
                GenerationEvent::Token { token, text, top } => {
                    let now = Instant::now();
                    let before = choice.last_token.replace(now);
                    self.model.metrics.token(before.map(|before| now.duration_since(before)));
                    Ok((index, ChoiceEvent::Token { token, text, top }))
                }
                GenerationEvent::End { text, end, usage, times } => {
                    choice.has_ended = true;
                    // The prompt counts once, however many choices continue it.
                    self.usage.prompt_tokens = usage.prompt_tokens;
                    self.usage.cached_tokens = self.usage.cached_tokens.max(usage.cached_tokens);
                    self.usage.generated_tokens += usage.generated_tokens;
                    let reason = finish_reason(end);
                    let name = reason.as_ref().map_or("error", |reason| *reason);
                    self.model.metrics.end(name, usage, times);
                    reason.map(|finish_reason| (index, ChoiceEvent::End { text, finish_reason }))
                }
            };
            return Poll::Ready(Some(event));
        }
        match self.choices.iter().all(|choice| choice.has_ended) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    /// Returns the next event with the index of its choice; `None` when all have ended.
    pub(super) async fn next_event(&mut self) -> Option<Result<(usize, ChoiceEvent), ApiError>> {
        poll_fn(|context| self.poll_event(context)).await
    }

    /// Returns the `usage` object.
    pub(super) fn usage(&self) -> Value {
        let StreamUsage { prompt_tokens, cached_tokens, generated_tokens } = self.usage;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated_tokens,
            "total_tokens": prompt_tokens + generated_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        })
    }
}

impl Drop for RunningChoices {
    /// Counts the choices whose client has left.
    fn drop(&mut self) {
        for choice in self.choices.iter().filter(|choice| !choice.has_ended) {
            choice.stream.cancel();
            self.model.metrics.abort();
        }
    }
}

/// Returns the reason that clients know; an error for choices that failed.
fn finish_reason(end: StreamEnd) -> Result<&'static str, ApiError> {
    match end {
        StreamEnd::Finished(FinishReason::Eos | FinishReason::Stop) => Ok("stop"),
        // Its maximum length, or that of the context.
        StreamEnd::Finished(_) | StreamEnd::DeadlineExceeded => Ok("length"),
        StreamEnd::Canceled => Err(ApiError::shutting_down()),
        StreamEnd::Failed(error) => Err(error.into()),
    }
}
