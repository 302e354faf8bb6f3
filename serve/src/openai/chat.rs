//! `POST /v1/chat/completions`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use siskin::serving::PromptInput;
use siskin::template::{Message, RenderOptions, TemplateData};

use super::running_choices::{ChoiceEvent, RunningChoices};
use super::sampling::{MAX_TOP_LOG_PROBABILITIES, SamplingFields, Streaming};
use super::{log_probabilities, response_id};
use crate::body;
use crate::error::ApiError;
use crate::json_fields::JsonFields;
use crate::models::unix_time;
use crate::response::{self, Response};
use crate::server_sent_events::{EventSource, EventStream};
use crate::state::ServerState;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
    #[expect(dead_code, reason = "templates of text models do not see it")]
    name: Option<IgnoredAny>,
    // As responses have them, so that they can be sent back.
    refusal: Option<String>,
    tool_calls: Option<Vec<IgnoredAny>>,
    #[expect(dead_code, reason = "annotations of responses are no part of a prompt")]
    annotations: Option<IgnoredAny>,
}

/// The content of a message: a text, or parts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

/// Answers a request.
pub(crate) async fn answer(state: &Arc<ServerState>, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = body::fields(&body)?;
    let model = Arc::clone(state.models.find(&fields.need::<String>("model")?)?);
    let messages: Vec<ChatMessage> = fields.need("messages")?;
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "expected at least one message"));
    }
    let messages = messages.iter().map(message).collect::<Result<Vec<_>, _>>()?;
    let variables: Option<BTreeMap<String, TemplateData>> = fields.take("chat_template_kwargs")?;
    let variables = RenderOptions {
        extra: variables.unwrap_or_default().into_iter().collect(),
        ..RenderOptions::default()
    };
    let max_completion_tokens = fields.take("max_completion_tokens")?;
    let top = log_probability_fields(&mut fields)?;
    let streaming = Streaming::take(&mut fields)?;
    reject_unsupported(&mut fields)?;
    let mut sampling = SamplingFields::take(fields)?;
    sampling.limit(max_completion_tokens);
    let requests = sampling.requests(&PromptInput::Messages(messages, variables), top, state.max_tokens)?;
    let running = RunningChoices::submit(state, &model, requests).await?;
    let header = ResponseHeader {
        id: response_id("chatcmpl"),
        created: unix_time(),
        has_log_probabilities: top.is_some(),
    };
    if !streaming.is_on {
        return whole(running, &header).await;
    }
    let count = running.choice_count();
    let mut chunks = ChunkSource {
        running,
        header,
        queued: VecDeque::new(),
        include_usage: streaming.include_usage,
        is_over: false,
    };
    for index in 0..count {
        chunks.push_chunk(index, &json!({"role": "assistant", "content": ""}), Value::Null, None);
    }
    Ok(response::events(EventStream::new(Box::new(chunks))))
}

/// Takes the number of most likely tokens to report; `None`: no log-probabilities.
fn log_probability_fields(fields: &mut JsonFields<'_>) -> Result<Option<usize>, ApiError> {
    let is_on = fields.take("logprobs")?.unwrap_or(false);
    let top: usize = fields.take("top_logprobs")?.unwrap_or(0);
    if top > MAX_TOP_LOG_PROBABILITIES {
        let message = format!("expected at most {MAX_TOP_LOG_PROBABILITIES}, got {top}");
        return Err(ApiError::invalid("top_logprobs", message));
    }
    if top > 0 && !is_on {
        return Err(ApiError::invalid("top_logprobs", "requires `logprobs`"));
    }
    Ok(is_on.then_some(top))
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
    let tools: Option<Vec<IgnoredAny>> = fields.take("tools")?;
    if tools.is_some_and(|tools| !tools.is_empty()) {
        return Err(ApiError::invalid("tools", "tool calls are not supported yet"));
    }
    let choice: Option<Value> = fields.take("tool_choice")?;
    if choice.is_some_and(|choice| choice != "none" && choice != "auto") {
        return Err(ApiError::invalid("tool_choice", "tool calls are not supported yet"));
    }
    fields.ignore(&["parallel_tool_calls"]);
    let format: Option<ResponseFormat> = fields.take("response_format")?;
    if let Some(format) = format.filter(|format| format.kind != "text") {
        let message = format!("`{}` is not supported yet; expected `text`", format.kind);
        return Err(ApiError::invalid("response_format", message));
    }
    let modalities: Option<Vec<String>> = fields.take("modalities")?;
    if modalities.is_some_and(|modalities| modalities.iter().any(|name| name != "text")) {
        return Err(ApiError::invalid("modalities", "only `text` is supported"));
    }
    Ok(())
}

/// Returns a message for the chat template. Texts of several parts are joined by line breaks.
fn message(message: &ChatMessage) -> Result<Message, ApiError> {
    if message.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) {
        return Err(ApiError::invalid("messages", "tool calls are not supported yet"));
    }
    let role = match message.role.as_str() {
        "developer" => "system",
        "system" | "user" | "assistant" => message.role.as_str(),
        other => {
            let message =
                format!("role `{other}` is not supported; expected system, developer, user or assistant");
            return Err(ApiError::invalid("messages", message));
        }
    };
    let content = match (&message.content, &message.refusal) {
        (Some(Content::Text(text)), _) => text.clone(),
        (Some(Content::Parts(parts)), _) => {
            let texts = parts.iter().map(|part| match (part.kind.as_str(), &part.text) {
                ("text", Some(text)) => Ok(text.as_str()),
                (kind, _) => {
                    let message = format!("content of type `{kind}` is not supported; expected `text`");
                    Err(ApiError::invalid("messages", message))
                }
            });
            texts.collect::<Result<Vec<_>, _>>()?.join("\n")
        }
        (None, Some(refusal)) => refusal.clone(),
        (None, None) => return Err(ApiError::invalid("messages", "a message has no content")),
    };
    Ok(Message::new(role, content))
}

/// What all objects of a response have.
struct ResponseHeader {
    id: String,
    created: u64,
    has_log_probabilities: bool,
}

impl ResponseHeader {
    fn object(&self, running: &RunningChoices, kind: &str, choices: &Value) -> Value {
        let model = running.model();
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": model.name,
            "system_fingerprint": model.fingerprint,
            "choices": choices,
        })
    }

    fn chunk(&self, running: &RunningChoices, choices: &Value) -> Value {
        self.object(running, "chat.completion.chunk", choices)
    }
}

/// Waits for all choices.
async fn whole(mut running: RunningChoices, header: &ResponseHeader) -> Result<Response, ApiError> {
    let count = running.choice_count();
    let (mut texts, mut reasons) = (vec![String::new(); count], vec![""; count]);
    let mut entries: Vec<Vec<Value>> = vec![Vec::new(); count];
    while let Some(event) = running.next_event().await {
        match event? {
            (index, ChoiceEvent::Token { token, text, top }) => {
                texts[index].push_str(&text);
                if header.has_log_probabilities {
                    let tokenizer = running.model().model.tokenizer().ok();
                    entries[index].push(log_probabilities::chat_entry(tokenizer, token, &top));
                }
            }
            (index, ChoiceEvent::End { text, finish_reason }) => {
                texts[index].push_str(&text);
                reasons[index] = finish_reason;
            }
        }
    }
    let choice = |(index, text): (usize, String)| {
        let content = std::mem::take(&mut entries[index]);
        let log_probabilities = if header.has_log_probabilities {
            json!({"content": content, "refusal": null})
        } else {
            Value::Null
        };
        json!({
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": null},
            "logprobs": log_probabilities,
            "finish_reason": reasons[index],
        })
    };
    let choices: Vec<Value> = texts.into_iter().enumerate().map(choice).collect();
    let mut object = header.object(&running, "chat.completion", &choices.into());
    object["usage"] = running.usage();
    Ok(response::json(StatusCode::OK, &object))
}

/// The chunks of a streamed response.
struct ChunkSource {
    running: RunningChoices,
    header: ResponseHeader,
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
            match self.running.poll_event(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok((index, event)))) => self.push(index, event),
                Poll::Ready(Some(Err(error))) => {
                    self.queued.push_back(error.body());
                    self.is_over = true;
                }
                Poll::Ready(None) => {
                    if self.include_usage {
                        let mut chunk = self.header.chunk(&self.running, &json!([]));
                        chunk["usage"] = self.running.usage();
                        self.queued.push_back(chunk);
                    }
                    self.is_over = true;
                }
            }
        }
    }
}

impl ChunkSource {
    fn push(&mut self, index: usize, event: ChoiceEvent) {
        let (text, entry, end) = match event {
            ChoiceEvent::Token { token, text, top } => {
                let tokenizer = self.running.model().model.tokenizer().ok();
                let entry = self
                    .header
                    .has_log_probabilities
                    .then(|| log_probabilities::chat_entry(tokenizer, token, &top));
                (text, entry, None)
            }
            ChoiceEvent::End { text, finish_reason } => (text, None, Some(finish_reason)),
        };
        if !text.is_empty() || entry.is_some() {
            let log_probabilities =
                entry.map_or(Value::Null, |entry| json!({"content": [entry], "refusal": null}));
            self.push_chunk(index, &json!({"content": text}), log_probabilities, None);
        }
        if let Some(reason) = end {
            self.push_chunk(index, &json!({}), Value::Null, Some(reason));
        }
    }

    fn push_chunk(&mut self, index: usize, delta: &Value, log_probabilities: Value, reason: Option<&str>) {
        let choice =
            json!([{"index": index, "delta": delta, "logprobs": log_probabilities, "finish_reason": reason}]);
        let mut chunk = self.header.chunk(&self.running, &choice);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        self.queued.push_back(chunk);
    }
}
