//! `POST /v1/chat/completions`.

use std::collections::VecDeque;

use hyper::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use siskin::chat::{ChatOptions, ChatPrompt, ResponseParser};
use siskin::serving::PromptInput;
use siskin::template::Message;
use siskin_format::JsonFields;

use super::chat_message::{delta, message_object};
use super::usage_chunks::{ChoiceRenderer, UsageChunks, usage_object};
use super::{ResponseHeader, structured_output};
use crate::body;
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::event_stream::{EventStream, StreamFormat};
use crate::generation::{
    CallIds, ChoiceEvent, Choices, ChunkStream, SamplingFields, Streaming, take_top_log_probabilities,
    token_entry,
};
use crate::response::{self, Response};

/// The fields of a request but for the model.
struct ChatRequest {
    messages: Vec<Message>,
    options: ChatOptions,
    /// The number of most likely tokens to report; `None`: no log-probabilities.
    top: Option<usize>,
    streaming: Streaming,
    sampling: SamplingFields,
    names: FieldNames,
}

impl ChatRequest {
    fn read(mut fields: JsonFields<'_>) -> Result<Self, ApiError> {
        let messages = messages(&fields.take_required::<Vec<&RawValue>>("messages")?)?;
        let output = structured_output::take(&mut fields)?;
        let structured_output = output.as_ref().map_or("response_format", |output| output.field);
        let names = FieldNames { prompt: "messages", structured_output };
        let mut options =
            ChatOptions { structured_output: output.map(|output| output.output), ..ChatOptions::default() };
        options.read_json(&mut fields)?;
        let max_completion_tokens: Option<usize> = fields.take("max_completion_tokens")?;
        if max_completion_tokens == Some(0) {
            return Err(ApiError::invalid("max_completion_tokens", "must be at least 1"));
        }
        let top = log_probability_fields(&mut fields)?;
        let streaming = Streaming::take(&mut fields)?;
        reject_unsupported(&mut fields)?;
        let mut sampling = SamplingFields::take(fields)?;
        sampling.limit(max_completion_tokens);
        Ok(Self { messages, options, top, streaming, sampling, names })
    }
}

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model_or_fallback(&mut fields)?;
    model.decoder()?;
    let ChatRequest { messages, options, top, streaming, sampling, names } = ChatRequest::read(fields)?;
    let opened = model.model.clone();
    let chat = call.state.run_blocking(move || opened.chat(&messages, &options)).await?;
    let chat = chat.map_err(|error| names.locate(error))?;
    let mut variants = sampling.variants(top, None, false, &call, &model.model)?;
    variants.iter_mut().for_each(|request| request.set_chat(&chat));
    let prompt = PromptInput::Tokens(chat.tokens.clone());
    let choices = Choices::submit(&call, &model, vec![prompt], variants, names).await?;
    let renderer = ChatRenderer::new(&chat, choices.count(), top.is_some());
    if !streaming.is_on {
        return renderer.whole(choices).await;
    }
    let role = json!({"role": "assistant", "content": ""});
    let roles = (0..choices.count()).map(|index| renderer.chunk(&choices, index, &role, Value::Null, None));
    let mut roles = roles.collect();
    let renderer = UsageChunks::new(renderer, streaming, &choices, &mut roles);
    let chunks = ChunkStream::new(choices, renderer, roles);
    Ok(response::stream(EventStream::new(StreamFormat::OpenAiEvents, Box::new(chunks))))
}

/// Reads the body of a request.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(body: &[u8]) {
    let _ = body::fields(body).and_then(ChatRequest::read);
}

/// Takes the number of most likely tokens to report; `None`: no log-probabilities.
fn log_probability_fields(fields: &mut JsonFields<'_>) -> Result<Option<usize>, ApiError> {
    let is_on = fields.take("logprobs")?.unwrap_or(false);
    let top = take_top_log_probabilities(fields, "top_logprobs")?.unwrap_or(0);
    if top > 0 && !is_on {
        return Err(ApiError::invalid("top_logprobs", "requires `logprobs`"));
    }
    Ok(is_on.then_some(top))
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
    let modalities: Option<Vec<String>> = fields.take("modalities")?;
    if modalities.is_some_and(|modalities| modalities.iter().any(|name| name != "text")) {
        return Err(ApiError::invalid("modalities", "only `text` is supported"));
    }
    Ok(())
}

/// Returns the messages for the chat template.
pub(crate) fn messages(list: &[&RawValue]) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "expected at least one message"));
    }
    let message = |(index, text): (usize, &&RawValue)| {
        message(text.get()).map_err(|error| error.within_field(&format!("messages[{index}]")).into())
    };
    list.iter().enumerate().map(message).collect()
}

/// Parses a message, also one that a response contained.
fn message(text: &str) -> siskin::Result<Message> {
    let mut fields = JsonFields::read(text)?;
    fields.ignore_null();
    let refusal: Option<String> = fields.take("refusal")?;
    let mut message = match refusal.filter(|_| !fields.has("content")) {
        Some(refusal) => Message::new(fields.take_required::<String>("role")?, refusal),
        None => Message::read_json(&mut fields)?,
    };
    match message.role.as_str() {
        "developer" => "system".clone_into(&mut message.role),
        "system" | "user" | "assistant" | "tool" => {}
        other => {
            let message =
                format!("`{other}` is not supported; expected system, developer, user, assistant or tool");
            return Err(siskin::Error::argument("role", message));
        }
    }
    fields.ignore(&["annotations"]);
    fields.finish()?;
    Ok(message)
}

/// Writes the objects of a response.
struct ChatRenderer {
    header: ResponseHeader,
    has_log_probabilities: bool,
    ids: CallIds,
    /// One for each choice.
    parsers: Vec<ResponseParser>,
}

impl ChatRenderer {
    fn new(chat: &ChatPrompt, count: usize, has_log_probabilities: bool) -> Self {
        let header = ResponseHeader::new("chatcmpl-");
        let ids = CallIds::new(&header.id, chat.call_id_length());
        let parsers = (0..count).map(|_| chat.parser()).collect();
        Self { header, has_log_probabilities, ids, parsers }
    }

    fn object(&self, choices: &Choices, kind: &str, list: &Value) -> Value {
        self.header.object(choices.model(), kind, list)
    }

    fn chunk(
        &self,
        choices: &Choices,
        index: usize,
        delta: &Value,
        log_probabilities: Value,
        finish_reason: Option<&str>,
    ) -> Value {
        let choice = json!({
            "index": index,
            "delta": delta,
            "logprobs": log_probabilities,
            "finish_reason": finish_reason,
        });
        self.object(choices, "chat.completion.chunk", &json!([choice]))
    }

    /// Returns the reason of an end that clients get.
    fn finish_reason(&self, index: usize, reason: &'static str) -> &'static str {
        if reason == "stop" && self.parsers[index].has_complete_calls() { "tool_calls" } else { reason }
    }

    /// Waits for all choices.
    async fn whole(mut self, mut choices: Choices) -> Result<Response, ApiError> {
        let count = choices.count();
        let assistant = Message { role: "assistant".to_owned(), ..Message::default() };
        let mut messages = vec![assistant; count];
        let (mut reasons, mut entries) = (vec![""; count], vec![Vec::<Value>::new(); count]);
        while let Some(event) = choices.next_event().await {
            let (index, event) = event?;
            match event {
                ChoiceEvent::Prompt { .. } => {}
                ChoiceEvent::Token { token, text, top } => {
                    self.parsers[index]
                        .push(&text)
                        .into_iter()
                        .for_each(|event| messages[index].append(event));
                    if self.has_log_probabilities {
                        let tokenizer = choices.model().model.tokenizer().ok();
                        entries[index].push(token_entry(tokenizer, token, &top));
                    }
                }
                ChoiceEvent::End { text, finish_reason, .. } => {
                    let mut events = self.parsers[index].push(&text);
                    events.extend(self.parsers[index].finish());
                    events.into_iter().for_each(|event| messages[index].append(event));
                    reasons[index] = self.finish_reason(index, finish_reason);
                }
            }
        }
        let choice = |(index, message): (usize, Message)| {
            let content = std::mem::take(&mut entries[index]);
            let log_probabilities = match self.has_log_probabilities {
                true => json!({"content": content, "refusal": null}),
                false => Value::Null,
            };
            json!({
                "index": index,
                "message": message_object(&self.ids, index, message),
                "logprobs": log_probabilities,
                "finish_reason": reasons[index],
            })
        };
        let list: Vec<Value> = messages.into_iter().enumerate().map(choice).collect();
        let mut object = self.object(&choices, "chat.completion", &list.into());
        object["usage"] = usage_object(choices.usage());
        Ok(response::json(StatusCode::OK, &object))
    }
}

impl ChoiceRenderer for ChatRenderer {
    fn render(&mut self, choices: &Choices, index: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let (text, entry, finish_reason) = match event {
            ChoiceEvent::Prompt { .. } => return,
            ChoiceEvent::Token { token, text, top } => {
                let tokenizer = choices.model().model.tokenizer().ok();
                let entry = || token_entry(tokenizer, token, &top);
                (text, self.has_log_probabilities.then(entry), None)
            }
            ChoiceEvent::End { text, finish_reason, .. } => (text, None, Some(finish_reason)),
        };
        let mut events = self.parsers[index].push(&text);
        if finish_reason.is_some() {
            events.extend(self.parsers[index].finish());
        }
        let mut deltas: Vec<Value> = events.iter().map(|event| delta(&self.ids, index, event)).collect();
        if deltas.is_empty() && entry.is_some() {
            deltas.push(json!({"content": ""}));
        }
        let mut log_probabilities =
            entry.map_or(Value::Null, |entry| json!({"content": [entry], "refusal": null}));
        for delta in deltas {
            chunks.push_back(self.chunk(choices, index, &delta, log_probabilities.take(), None));
        }
        if let Some(reason) = finish_reason {
            let reason = self.finish_reason(index, reason);
            chunks.push_back(self.chunk(choices, index, &json!({}), Value::Null, Some(reason)));
        }
    }

    fn empty_chunk(&self, choices: &Choices) -> Value {
        self.object(choices, "chat.completion.chunk", &json!([]))
    }
}
