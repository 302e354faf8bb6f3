//! `POST /v1/completions`.

use std::collections::VecDeque;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use siskin::serving::PromptInput;

use super::choices::{ChoiceEvent, Choices, ChunkRenderer, ChunkStream};
use super::log_probabilities::CompletionLogProbabilities;
use super::sampling::{SamplingFields, Streaming, take_top_log_probabilities};
use super::{ResponseHeader, TextInput, structured_output};
use crate::body;
use crate::error::{ApiError, FieldNames};
use crate::response::{self, Response};
use crate::server_sent_events::EventStream;
use crate::state::ServerState;
use siskin_format::JsonFields;

/// The maximum number of prompts of a request.
const MAX_PROMPTS: usize = 64;

/// Returns the prompts of a request. Clients may apply templates of their own, so special tokens are recognized.
fn prompts(input: TextInput) -> Vec<PromptInput> {
    match input {
        TextInput::Text(text) => vec![PromptInput::TextWithSpecialTokens(text)],
        TextInput::Texts(texts) => texts.into_iter().map(PromptInput::TextWithSpecialTokens).collect(),
        TextInput::Tokens(tokens) => vec![PromptInput::Tokens(tokens)],
        TextInput::TokenLists(lists) => lists.into_iter().map(PromptInput::Tokens).collect(),
    }
}

/// Answers a request.
pub(crate) async fn answer(state: &Arc<ServerState>, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = body::fields(&body)?;
    let model = Arc::clone(state.models.find(&fields.take_required::<String>("model")?)?);
    let prompts = prompts(fields.take_required("prompt")?);
    if !(1..=MAX_PROMPTS).contains(&prompts.len()) {
        let message = format!("expected 1 to {MAX_PROMPTS} prompts, got {}", prompts.len());
        return Err(ApiError::invalid("prompt", message));
    }
    let top = take_top_log_probabilities(&mut fields, "logprobs")?;
    let streaming = Streaming::take(&mut fields)?;
    let best_of: Option<usize> = fields.take("best_of")?;
    reject_unsupported(&mut fields)?;
    let output = structured_output::take(&mut fields)?;
    let sampling = SamplingFields::take(fields)?;
    if best_of.is_some_and(|best_of| best_of != sampling.choices()) {
        return Err(ApiError::invalid("best_of", "is not supported; use `n`"));
    }
    let structured_output = output.as_ref().map_or("response_format", |output| output.field);
    let names = FieldNames { prompt: "prompt", structured_output };
    let output = output.map(|output| output.output);
    let variants = sampling.variants(top, output, state.max_tokens, &model.model)?;
    let choices = Choices::submit(state, &model, prompts, variants, names).await?;
    let log_probabilities = match top {
        Some(_) => (0..choices.count()).map(|_| CompletionLogProbabilities::default()).collect(),
        None => Vec::new(),
    };
    let mut renderer = CompletionRenderer { header: ResponseHeader::new("cmpl"), log_probabilities };
    if !streaming.is_on {
        return renderer.whole(choices).await;
    }
    let chunks = ChunkStream::new(choices, renderer, streaming.include_usage, VecDeque::new());
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

/// Writes the objects of a response.
struct CompletionRenderer {
    header: ResponseHeader,
    /// By choice; empty if the request wants none.
    log_probabilities: Vec<CompletionLogProbabilities>,
}

impl CompletionRenderer {
    fn object(&self, choices: &Choices, list: &Value) -> Value {
        self.header.object(choices.model(), "text_completion", list)
    }

    /// Returns the text and the end of an event, and records its log-probabilities.
    fn take(
        &mut self,
        choices: &Choices,
        index: usize,
        event: ChoiceEvent,
    ) -> (String, Option<&'static str>) {
        match event {
            ChoiceEvent::Token { token, text, top } => {
                let tokenizer = choices.model().model.tokenizer().ok();
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

    /// Waits for all choices.
    async fn whole(&mut self, mut choices: Choices) -> Result<Response, ApiError> {
        let count = choices.count();
        let (mut texts, mut reasons) = (vec![String::new(); count], vec![None; count]);
        while let Some(event) = choices.next_event().await {
            let (index, event) = event?;
            let (text, reason) = self.take(&choices, index, event);
            texts[index].push_str(&text);
            reasons[index] = reason;
        }
        let list: Vec<Value> =
            (0..count).map(|index| self.choice(index, &texts[index], reasons[index])).collect();
        let mut object = self.object(&choices, &list.into());
        object["usage"] = choices.usage();
        Ok(response::json(StatusCode::OK, &object))
    }
}

impl ChunkRenderer for CompletionRenderer {
    fn render(&mut self, choices: &Choices, index: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let (text, reason) = self.take(choices, index, event);
        if !text.is_empty() || reason.is_some() || !self.log_probabilities.is_empty() {
            let choice = self.choice(index, &text, reason);
            chunks.push_back(self.object(choices, &json!([choice])));
        }
    }

    fn empty_chunk(&self, choices: &Choices) -> Value {
        self.object(choices, &json!([]))
    }
}
