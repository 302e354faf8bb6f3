//! `POST /v1/completions`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use siskin::serving::PromptInput;

use super::log_probabilities::CompletionLogProbabilities;
use super::response_id;
use super::running_choices::{ChoiceEvent, RunningChoices};
use super::sampling::{MAX_TOP_LOG_PROBABILITIES, SamplingFields, Streaming};
use crate::body;
use crate::error::ApiError;
use crate::json_fields::JsonFields;
use crate::models::unix_time;
use crate::response::{self, Response};
use crate::server_sent_events::{EventSource, EventStream};
use crate::state::ServerState;

/// The maximum number of prompts of a request.
const MAX_PROMPTS: usize = 64;

/// One prompt or several, as text or as tokens.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, a list of texts, or lists of token ids")]
enum Prompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompt {
    fn inputs(self) -> Vec<PromptInput> {
        match self {
            Self::Text(text) => vec![PromptInput::Text(text)],
            Self::Texts(texts) => texts.into_iter().map(PromptInput::Text).collect(),
            Self::Tokens(tokens) => vec![PromptInput::Tokens(tokens)],
            Self::TokenLists(lists) => lists.into_iter().map(PromptInput::Tokens).collect(),
        }
    }
}

/// Answers a request.
pub(crate) async fn answer(state: &Arc<ServerState>, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = body::fields(&body)?;
    let model = Arc::clone(state.models.find(&fields.need::<String>("model")?)?);
    let inputs = fields.need::<Prompt>("prompt")?.inputs();
    if !(1..=MAX_PROMPTS).contains(&inputs.len()) {
        let message = format!("expected 1 to {MAX_PROMPTS} prompts, got {}", inputs.len());
        return Err(ApiError::invalid("prompt", message));
    }
    let top: Option<usize> = fields.take("logprobs")?;
    if let Some(top) = top.filter(|&top| top > MAX_TOP_LOG_PROBABILITIES) {
        let message = format!("expected at most {MAX_TOP_LOG_PROBABILITIES}, got {top}");
        return Err(ApiError::invalid("logprobs", message));
    }
    let streaming = Streaming::take(&mut fields)?;
    let best_of: Option<usize> = fields.take("best_of")?;
    reject_unsupported(&mut fields)?;
    let sampling = SamplingFields::take(fields)?;
    if best_of.is_some_and(|best_of| best_of != sampling.choices()) {
        return Err(ApiError::invalid("best_of", "is not supported; use `n`"));
    }
    let mut requests = Vec::new();
    for input in &inputs {
        requests.extend(sampling.requests(input, top, state.max_tokens)?);
    }
    let running = RunningChoices::submit(state, &model, requests).await?;
    let log_probabilities = match top {
        Some(_) => (0..running.choice_count()).map(|_| CompletionLogProbabilities::default()).collect(),
        None => Vec::new(),
    };
    let mut completion =
        Completion { running, id: response_id("cmpl"), created: unix_time(), log_probabilities };
    if !streaming.is_on {
        return completion.whole().await;
    }
    let chunks = ChunkSource {
        completion,
        queued: VecDeque::new(),
        include_usage: streaming.include_usage,
        is_over: false,
    };
    Ok(response::events(EventStream::new(Box::new(chunks))))
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
    if fields.take("echo")?.unwrap_or(false) {
        return Err(ApiError::invalid("echo", "is not supported yet"));
    }
    let suffix: Option<String> = fields.take("suffix")?;
    match suffix.is_some_and(|suffix| !suffix.is_empty()) {
        true => Err(ApiError::invalid("suffix", "is not supported")),
        false => Ok(()),
    }
}

/// A running completion.
struct Completion {
    running: RunningChoices,
    id: String,
    created: u64,
    /// By choice; empty if the request wants none.
    log_probabilities: Vec<CompletionLogProbabilities>,
}

impl Completion {
    fn object(&self, choices: &Value) -> Value {
        let model = self.running.model();
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": model.name,
            "system_fingerprint": model.fingerprint,
            "choices": choices,
        })
    }

    /// Returns the text and the end of an event, and records its log-probabilities.
    fn take(&mut self, index: usize, event: ChoiceEvent) -> (String, Option<&'static str>) {
        match event {
            ChoiceEvent::Token { token, text, top } => {
                let tokenizer = self.running.model().model.tokenizer().ok();
                if let Some(log_probabilities) = self.log_probabilities.get_mut(index) {
                    log_probabilities.push(tokenizer, token, &top);
                }
                (text, None)
            }
            ChoiceEvent::End { text, finish_reason } => (text, Some(finish_reason)),
        }
    }

    fn choice(&mut self, index: usize, text: &str, finish_reason: Option<&str>) -> Value {
        let taken = self.log_probabilities.get_mut(index).map(CompletionLogProbabilities::take);
        json!({"index": index, "text": text, "logprobs": taken, "finish_reason": finish_reason})
    }

    async fn whole(&mut self) -> Result<Response, ApiError> {
        let count = self.running.choice_count();
        let (mut texts, mut reasons) = (vec![String::new(); count], vec![None; count]);
        while let Some(event) = self.running.next_event().await {
            let (index, event) = event?;
            let (text, reason) = self.take(index, event);
            texts[index].push_str(&text);
            reasons[index] = reason;
        }
        let choices: Vec<Value> =
            (0..count).map(|index| self.choice(index, &texts[index], reasons[index])).collect();
        let mut object = self.object(&choices.into());
        object["usage"] = self.running.usage();
        Ok(response::json(StatusCode::OK, &object))
    }
}

/// The chunks of a streamed response.
struct ChunkSource {
    completion: Completion,
    /// Chunks that come before the next event.
    queued: VecDeque<Value>,
    include_usage: bool,
    is_over: bool,
}

impl EventSource for ChunkSource {
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Value>> {
        loop {
            if let Some(chunk) = self.queued.pop_front() {
                return Poll::Ready(Some(chunk));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.completion.running.poll_event(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((index, event)))) => {
                    let (text, reason) = self.completion.take(index, event);
                    if text.is_empty() && reason.is_none() && self.completion.log_probabilities.is_empty() {
                        continue;
                    }
                    let choice = self.completion.choice(index, &text, reason);
                    let mut chunk = self.completion.object(&json!([choice]));
                    if self.include_usage {
                        chunk["usage"] = Value::Null;
                    }
                    return Poll::Ready(Some(chunk));
                }
                Poll::Ready(Some(Err(error))) => {
                    self.queued.push_back(error.body());
                    self.is_over = true;
                }
                Poll::Ready(None) => {
                    if self.include_usage {
                        let mut chunk = self.completion.object(&json!([]));
                        chunk["usage"] = self.completion.running.usage();
                        self.queued.push_back(chunk);
                    }
                    self.is_over = true;
                }
            }
        }
    }
}
