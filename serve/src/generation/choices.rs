//! The choices of a response while they are generated: one request to the engine each.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use siskin::FinishReason;
use siskin::sample::SampledToken;
use siskin::serving::{
    CacheSalt, GenerationEvent, GenerationRequest, GenerationStream, PromptInput, RequestClass, Speculation,
    StreamEnd, StreamTimes, StreamUsage, TokenScore,
};

use crate::call::Call;
use crate::clients::Client;
use crate::error::{ApiError, FieldNames};
use crate::models::RegisteredModel;
use crate::operations::degradation::DegradationLevel;
use crate::operations::health::AdmittedRequest;
use crate::operations::quality::QualitySample;

/// The choices of all prompts of a response. Dropping it cancels them.
pub(crate) struct Choices {
    model: Arc<RegisteredModel>,
    client: Client,
    choices: Vec<Choice>,
    /// The number of choices for each prompt, which follow each other.
    per_prompt: usize,
    /// The tokens of each prompt.
    prompts: Vec<Vec<u32>>,
    /// What each prompt used.
    usage: Vec<StreamUsage>,
    salt: CacheSalt,
    /// The texts follow a grammar.
    is_structured: bool,
    /// `None` once the outcome is known.
    admitted: Option<AdmittedRequest>,
}

struct Choice {
    stream: GenerationStream,
    /// When its last token was sampled.
    last_token: Option<Duration>,
    has_ended: bool,
    /// The tokens so far, if the request is a sample.
    sampled: Option<Vec<u32>>,
}

impl Choice {
    fn new(stream: GenerationStream, model: &RegisteredModel) -> Self {
        let sampled = model.quality.selects_next().then(Vec::new);
        Self { stream, last_token: None, has_ended: false, sampled }
    }
}

/// An event of a choice.
pub(crate) enum ChoiceEvent {
    /// The tokens of the prompt from the second on.
    Prompt {
        tokens: Vec<TokenScore>,
    },
    Token {
        token: SampledToken,
        text: String,
        top: Vec<SampledToken>,
    },
    End {
        text: String,
        /// The end token, if there is one and log-probabilities are enabled.
        end_token: Option<Box<TokenScore>>,
        finish_reason: &'static str,
        times: StreamTimes,
    },
}

impl Choices {
    /// Submits a request for each prompt and each of `variants`, which differ in their seeds. Prompts are tokenized on
    /// another thread.
    pub(crate) async fn submit(
        call: &Call,
        model: &Arc<RegisteredModel>,
        prompts: Vec<PromptInput>,
        mut variants: Vec<GenerationRequest>,
        names: FieldNames,
    ) -> Result<Self, ApiError> {
        let (id, per_prompt) = (model.decoder()?, variants.len());
        let count = prompts.len() * per_prompt;
        if count > model.max_requests {
            let message = format!("{count} choices requested; the limit is {}", model.max_requests);
            return Err(ApiError::invalid(if per_prompt > 1 { "n" } else { "prompt" }, message));
        }
        let admitted = model.admit()?;
        call.client.begin_request()?;
        degrade(call, model, &mut variants)?;
        let (salt, is_structured) = sampled_traits(&variants);
        let (engine, adapter) = (call.state.models.engine().clone(), model.adapter_name());
        let drift = model.drift.clone();
        let submit = move || {
            let mut streams = Vec::with_capacity(count);
            let mut tokenized = Vec::with_capacity(prompts.len());
            for prompt in prompts {
                let tokens = engine.tokenize(id, &prompt)?;
                for variant in &variants {
                    let prompt = PromptInput::Tokens(tokens.clone());
                    let adapter = adapter.clone();
                    let request = GenerationRequest { prompt, adapter, ..variant.clone() };
                    // If one fails, those before it are dropped, which cancels them.
                    streams.push(engine.submit(id, request)?);
                }
                drift.iter().for_each(|drift| drift.observe_prompt(&tokens));
                tokenized.push(tokens);
            }
            Ok((streams, tokenized))
        };
        let submitted: siskin::Result<(Vec<_>, Vec<_>)> = call.state.run_blocking(submit).await?;
        let (streams, prompts) =
            submitted.map_err(|error| record_rejection(model, names, is_structured, error))?;
        let usage: Vec<StreamUsage> = streams
            .iter()
            .step_by(per_prompt)
            .map(|stream| StreamUsage { prompt_tokens: stream.prompt_tokens(), ..StreamUsage::default() })
            .collect();
        model.metrics.record_prompt(usage.iter().map(|usage| usage.prompt_tokens).sum());
        let choices = streams.into_iter().map(|stream| Choice::new(stream, model)).collect();
        Ok(Self {
            model: Arc::clone(model),
            client: call.client.clone(),
            choices,
            per_prompt,
            prompts,
            usage,
            salt,
            is_structured,
            admitted: Some(admitted),
        })
    }

    pub(crate) fn model(&self) -> &RegisteredModel {
        &self.model
    }

    /// Returns the number of a choice's prompt.
    pub(crate) fn prompt_index(&self, index: usize) -> usize {
        index / self.per_prompt
    }

    /// Returns the tokens of a choice's prompt.
    pub(crate) fn prompt(&self, index: usize) -> &[u32] {
        &self.prompts[self.prompt_index(index)]
    }

    pub(crate) fn count(&self) -> usize {
        self.choices.len()
    }

    /// Returns the next event with the index of its choice; `None` when all have ended.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(usize, ChoiceEvent), ApiError>>> {
        for (index, choice) in self.choices.iter_mut().enumerate().filter(|(_, choice)| !choice.has_ended) {
            let Poll::Ready(Some(event)) = choice.stream.poll_event(context) else { continue };
            let usage = &mut self.usage[index / self.per_prompt];
            let event = match event {
                GenerationEvent::Prompt { tokens } => Ok((index, ChoiceEvent::Prompt { tokens })),
                GenerationEvent::Token { token, text, top, time } => {
                    if choice.last_token.is_none() {
                        self.admitted.iter().for_each(AdmittedRequest::record_output);
                    }
                    usage.generated_tokens += 1;
                    choice.sampled.iter_mut().for_each(|tokens| tokens.push(token.id));
                    let gap = choice.last_token.replace(time).map(|before| time.saturating_sub(before));
                    self.model.metrics.record_token(gap);
                    Ok((index, ChoiceEvent::Token { token, text, top }))
                }
                GenerationEvent::End { text, end_token, end, usage: own, times } => {
                    choice.has_ended = true;
                    // Further choices find the prompt of the first.
                    if index % self.per_prompt == 0 {
                        usage.cached_tokens = own.cached_tokens;
                    }
                    let (name, finish_reason) = finish_reason(end);
                    if let Some(answer) = choice.sampled.take().filter(|_| finish_reason.is_ok()) {
                        self.model.quality.push(QualitySample {
                            prompt: self.prompts[index / self.per_prompt].clone(),
                            answer,
                            is_truncated: name == "length",
                            is_structured: self.is_structured,
                            salt: self.salt,
                        });
                    }
                    self.model.metrics.record_end(name, times);
                    finish_reason.map(|finish_reason| {
                        (index, ChoiceEvent::End { text, end_token, finish_reason, times })
                    })
                }
            };
            if let Err(error) = &event {
                self.admitted.take().into_iter().for_each(|admitted| admitted.end(Some(error)));
                // The response ends here. The others are canceled by the server, not by the client.
                self.choices.iter_mut().for_each(|choice| choice.has_ended = true);
            }
            return Poll::Ready(Some(event));
        }
        match self.choices.iter().all(|choice| choice.has_ended) {
            true => {
                self.admitted.take().into_iter().for_each(|admitted| admitted.end(None));
                Poll::Ready(None)
            }
            false => Poll::Pending,
        }
    }

    /// Returns the next event with the index of its choice; `None` when all have ended.
    pub(crate) async fn next_event(&mut self) -> Option<Result<(usize, ChoiceEvent), ApiError>> {
        poll_fn(|context| self.poll_event(context)).await
    }

    /// Returns what all prompts used.
    pub(crate) fn usage(&self) -> StreamUsage {
        let sum = |count: fn(&StreamUsage) -> usize| self.usage.iter().map(count).sum::<usize>();
        StreamUsage {
            prompt_tokens: sum(|usage| usage.prompt_tokens),
            cached_tokens: sum(|usage| usage.cached_tokens),
            generated_tokens: sum(|usage| usage.generated_tokens),
        }
    }
}

/// Counts a request that was not submitted; returns the error for the client.
fn record_rejection(
    model: &RegisteredModel,
    names: FieldNames,
    is_structured: bool,
    error: siskin::Error,
) -> ApiError {
    model.metrics.record_rejection(&error);
    let error = names.locate(error);
    if is_structured && error.param() == Some(names.structured_output) {
        model.quality.record_rejected_output();
    }
    error
}

/// Returns what samples of the requests need to know: the salt, and whether the texts follow a grammar.
fn sampled_traits(variants: &[GenerationRequest]) -> (CacheSalt, bool) {
    let first = variants.first();
    let is_structured = first.is_some_and(|request| request.structured_output.is_some());
    (first.map_or(CacheSalt::default(), |request| request.salt), is_structured)
}

/// The maximum number of tokens of responses when they are shortened.
const SHORT_RESPONSE: usize = 256;

/// Gives up what the predicted wait demands.
fn degrade(call: &Call, model: &RegisteredModel, variants: &mut [GenerationRequest]) -> Result<(), ApiError> {
    let level = call.degradation(model);
    if level >= DegradationLevel::Reject {
        let wait = call.state.models.predicted_wait(model);
        let message = format!("a request would wait for {} seconds; try again later", wait.as_secs());
        return Err(ApiError::rate_limited(message, wait));
    }
    if level >= DegradationLevel::ShortResponses
        && variants.iter().any(|request| request.max_tokens > SHORT_RESPONSE)
    {
        call.report_degradation(format!("max_tokens={SHORT_RESPONSE}"));
    }
    for request in variants {
        if level >= DegradationLevel::NoSpeculation {
            request.speculation = Speculation::Off;
        }
        if level >= DegradationLevel::BatchWaits && request.class == RequestClass::Batch {
            request.class = RequestClass::Shadow;
        }
        if level >= DegradationLevel::ShortResponses {
            request.max_tokens = request.max_tokens.min(SHORT_RESPONSE);
        }
    }
    Ok(())
}

impl Drop for Choices {
    /// Counts the tokens, and the choices whose client has left.
    fn drop(&mut self) {
        let tokens = |usage: &StreamUsage| usage.prompt_tokens + usage.generated_tokens;
        self.client.count_tokens(self.usage.iter().map(tokens).sum());
        self.choices
            .iter()
            .filter(|choice| !choice.has_ended)
            .for_each(|_| self.model.metrics.record_abort());
    }
}

/// Returns the reason of an end for the metrics, and that for the client; an error for generations that failed.
fn finish_reason(end: StreamEnd) -> (&'static str, Result<&'static str, ApiError>) {
    match end {
        StreamEnd::Finished(FinishReason::Eos | FinishReason::Stop) => ("stop", Ok("stop")),
        // Its maximum length, or that of the context.
        StreamEnd::Finished(_) | StreamEnd::DeadlineExceeded => ("length", Ok("length")),
        StreamEnd::Canceled => ("abort", Err(ApiError::shutting_down())),
        StreamEnd::ReaderTooSlow => ("abort", Err(ApiError::reader_too_slow())),
        StreamEnd::Failed(error) => ("error", Err(error.into())),
    }
}
