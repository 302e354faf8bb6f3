//! `POST /v1/completions`.

use std::collections::VecDeque;

use hyper::StatusCode;
use serde_json::{Value, json};
use siskin::serving::PromptInput;

use super::log_probabilities::CompletionLogProbabilities;
use super::usage_chunks::{ChoiceRenderer, UsageChunks, usage_object};
use super::{ResponseHeader, TextInput, structured_output};
use crate::body;
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::event_stream::{EventStream, StreamFormat};
use crate::generation::{
    ChoiceEvent, Choices, ChunkStream, SamplingFields, Streaming, take_top_log_probabilities, token_text,
};
use crate::response::{self, Response};
use siskin_format::JsonFields;

/// The maximum number of prompts of a request.
const MAX_PROMPTS: usize = 64;

/// The prompts at the beginning of the choices.
enum Echo {
    None,
    /// The texts of the prompts; `None`: that of their tokens. The log-probabilities of their tokens come with them.
    Prompts {
        texts: Vec<Option<String>>,
        has_log_probabilities: bool,
    },
}

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
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model_or_fallback(&mut fields)?;
    let prompts: Vec<PromptInput> = prompts(fields.take_required("prompt")?);
    if !(1..=MAX_PROMPTS).contains(&prompts.len()) {
        let message = format!("expected 1 to {MAX_PROMPTS} prompts, got {}", prompts.len());
        return Err(ApiError::invalid("prompt", message));
    }
    let top = take_top_log_probabilities(&mut fields, "logprobs")?;
    let streaming = Streaming::take(&mut fields)?;
    let best_of: Option<usize> = fields.take("best_of")?;
    let echo = match fields.take("echo")?.unwrap_or(false) {
        true => Echo::of(&prompts, top.is_some()),
        false => Echo::None,
    };
    reject_unsupported(&mut fields)?;
    let output = structured_output::take(&mut fields)?;
    let sampling = SamplingFields::take(fields)?;
    if best_of.is_some_and(|best_of| best_of != sampling.choices()) {
        return Err(ApiError::invalid("best_of", "is not supported; use `n`"));
    }
    let structured_output = output.as_ref().map_or("response_format", |output| output.field);
    let names = FieldNames { prompt: "prompt", structured_output };
    let output = output.map(|output| output.output);
    let scores_prompt = echo.needs_scores(&sampling);
    let top_or_scores = top.or(scores_prompt.then_some(0));
    let variants = sampling.variants(top_or_scores, output, scores_prompt, &call, &model.model)?;
    let choices = Choices::submit(&call, &model, prompts, variants, names).await?;
    let log_probabilities = match top {
        Some(_) => (0..choices.count()).map(|_| CompletionLogProbabilities::default()).collect(),
        None => Vec::new(),
    };
    let mut renderer = CompletionRenderer { header: ResponseHeader::new("cmpl-"), log_probabilities, echo };
    if !streaming.is_on {
        return renderer.whole(choices).await;
    }
    let mut first = renderer.echoed_chunks(&choices);
    let renderer = UsageChunks::new(renderer, streaming, &choices, &mut first);
    let chunks = ChunkStream::new(choices, renderer, first);
    Ok(response::stream(EventStream::new(StreamFormat::OpenAiEvents, Box::new(chunks))))
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
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
    echo: Echo,
}

impl Echo {
    fn of(prompts: &[PromptInput], has_log_probabilities: bool) -> Self {
        let text = |prompt: &PromptInput| match prompt {
            PromptInput::TextWithSpecialTokens(text) => Some(text.clone()),
            _ => None,
        };
        Self::Prompts { texts: prompts.iter().map(text).collect(), has_log_probabilities }
    }

    /// Returns whether prompts are to be scored: for their log-probabilities, or since nothing is to be generated.
    fn needs_scores(&self, sampling: &SamplingFields) -> bool {
        match self {
            Self::None => false,
            Self::Prompts { has_log_probabilities, .. } => {
                *has_log_probabilities || sampling.generates_nothing()
            }
        }
    }

    /// Returns the text at the beginning of a choice.
    fn text(&self, choices: &Choices, index: usize) -> String {
        let Self::Prompts { texts, .. } = self else { return String::new() };
        let given = texts.get(choices.prompt_index(index)).cloned().flatten();
        given.unwrap_or_else(|| {
            let tokenizer = choices.model().model.tokenizer().ok();
            let bytes = |token: &u32| token_text(tokenizer, *token).0;
            let bytes: Vec<u8> = choices.prompt(index).iter().flat_map(bytes).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
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
            ChoiceEvent::Prompt { tokens } => {
                let Some(log_probabilities) = self.log_probabilities.get_mut(index) else {
                    return (String::new(), None);
                };
                let tokenizer = choices.model().model.tokenizer().ok();
                log_probabilities.push_prompt(tokenizer, choices.prompt(index).first().copied(), &tokens);
                (self.echo.text(choices, index), None)
            }
            ChoiceEvent::Token { token, text, top } => {
                let tokenizer = choices.model().model.tokenizer().ok();
                if let Some(log_probabilities) = self.log_probabilities.get_mut(index) {
                    log_probabilities.push(tokenizer, token, &top);
                }
                (text, None)
            }
            ChoiceEvent::End { text, end_token, finish_reason, .. } => {
                // Evaluation tools expect one entry for each token that was sampled.
                if let (Some(end), Some(log_probabilities)) =
                    (end_token, self.log_probabilities.get_mut(index))
                {
                    let tokenizer = choices.model().model.tokenizer().ok();
                    log_probabilities.push(tokenizer, end.token, &end.top);
                }
                (text, Some(finish_reason))
            }
        }
    }

    fn choice(&mut self, index: usize, text: &str, finish_reason: Option<&str>) -> Value {
        let taken = self.log_probabilities.get_mut(index).map(CompletionLogProbabilities::take);
        json!({"index": index, "text": text, "logprobs": taken, "finish_reason": finish_reason})
    }

    /// Returns the text of a choice before the first event, which has none of it then.
    fn echoed_first(&self, choices: &Choices, index: usize) -> String {
        match &self.echo {
            Echo::Prompts { has_log_probabilities: false, .. } => self.echo.text(choices, index),
            Echo::Prompts { .. } | Echo::None => String::new(),
        }
    }

    /// Returns the chunks before the first event.
    fn echoed_chunks(&mut self, choices: &Choices) -> VecDeque<Value> {
        let mut chunks = VecDeque::new();
        for index in 0..choices.count() {
            let text = self.echoed_first(choices, index);
            if !text.is_empty() {
                let choice = self.choice(index, &text, None);
                chunks.push_back(self.object(choices, &json!([choice])));
            }
        }
        chunks
    }

    /// Waits for all choices.
    async fn whole(&mut self, mut choices: Choices) -> Result<Response, ApiError> {
        let count = choices.count();
        let mut texts: Vec<String> = (0..count).map(|index| self.echoed_first(&choices, index)).collect();
        let mut reasons = vec![None; count];
        while let Some(event) = choices.next_event().await {
            let (index, event) = event?;
            let (text, reason) = self.take(&choices, index, event);
            texts[index].push_str(&text);
            reasons[index] = reason;
        }
        let list: Vec<Value> =
            (0..count).map(|index| self.choice(index, &texts[index], reasons[index])).collect();
        let mut object = self.object(&choices, &list.into());
        object["usage"] = usage_object(choices.usage());
        Ok(response::json(StatusCode::OK, &object))
    }
}

impl ChoiceRenderer for CompletionRenderer {
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
