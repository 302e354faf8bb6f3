//! `POST /v1/chat/completions`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use siskin::serving::PromptInput;
use siskin::template::{Message, RenderOptions, TemplateData};
use siskin_format::JsonFields;

use super::choices::{ChoiceEvent, Choices, ChunkRenderer, ChunkStream};
use super::sampling::{SamplingFields, Streaming, take_top_log_probabilities};
use super::{ResponseHeader, log_probabilities, structured_output};
use crate::body;
use crate::error::ApiError;
use crate::response::{self, Response};
use crate::server_sent_events::EventStream;
use crate::state::ServerState;

/// A part of a message's content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// Answers a request.
pub(crate) async fn answer(state: &Arc<ServerState>, body: Bytes) -> Result<Response, ApiError> {
    let mut fields = body::fields(&body)?;
    let model = Arc::clone(state.models.find(&fields.take_required::<String>("model")?)?);
    let messages = messages(&fields.take_required::<Vec<&RawValue>>("messages")?)?;
    let prompt = PromptInput::Messages(messages, template_variables(&mut fields)?);
    let max_completion_tokens: Option<usize> = fields.take("max_completion_tokens")?;
    if max_completion_tokens == Some(0) {
        return Err(ApiError::invalid("max_completion_tokens", "must be at least 1"));
    }
    let top = log_probability_fields(&mut fields)?;
    let streaming = Streaming::take(&mut fields)?;
    reject_unsupported(&mut fields)?;
    let output = structured_output::take(&mut fields)?;
    let mut sampling = SamplingFields::take(fields)?;
    sampling.limit(max_completion_tokens);
    let variants = sampling.variants(top, output, state.max_tokens)?;
    let choices = Choices::submit(state, &model, vec![prompt], variants).await?;
    let header = ResponseHeader::new("chatcmpl");
    let renderer = ChatRenderer { header, has_log_probabilities: top.is_some() };
    if !streaming.is_on {
        return renderer.whole(choices).await;
    }
    let role = json!({"role": "assistant", "content": ""});
    let roles = (0..choices.count()).map(|index| renderer.chunk(&choices, index, &role, Value::Null, None));
    let roles = roles.collect();
    let chunks = ChunkStream::new(choices, renderer, streaming.include_usage, roles);
    Ok(response::events(EventStream::new(Box::new(chunks))))
}

/// Takes the variables of the chat template.
fn template_variables(fields: &mut JsonFields<'_>) -> Result<RenderOptions, ApiError> {
    let name = "chat_template_kwargs";
    let extra: BTreeMap<String, TemplateData> = fields.take(name)?.unwrap_or_default();
    let reserved = ["messages", "tools", "documents", "bos_token", "eos_token", "add_generation_prompt"];
    if let Some(reserved) = reserved.iter().find(|reserved| extra.contains_key(**reserved)) {
        return Err(ApiError::invalid(name, format!("`{reserved}` cannot be set here")));
    }
    Ok(RenderOptions { extra: extra.into_iter().collect(), ..RenderOptions::default() })
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
    let tools: Option<Vec<IgnoredAny>> = fields.take("tools")?;
    if tools.is_some_and(|tools| !tools.is_empty()) {
        return Err(ApiError::invalid("tools", "tool calls are not supported yet"));
    }
    let choice: Option<Value> = fields.take("tool_choice")?;
    if choice.is_some_and(|choice| choice != "none" && choice != "auto") {
        return Err(ApiError::invalid("tool_choice", "tool calls are not supported yet"));
    }
    fields.ignore(&["parallel_tool_calls"]);
    let modalities: Option<Vec<String>> = fields.take("modalities")?;
    if modalities.is_some_and(|modalities| modalities.iter().any(|name| name != "text")) {
        return Err(ApiError::invalid("modalities", "only `text` is supported"));
    }
    Ok(())
}

/// Returns the messages for the chat template.
fn messages(list: &[&RawValue]) -> Result<Vec<Message>, ApiError> {
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "expected at least one message"));
    }
    let numbered = list.iter().enumerate();
    numbered
        .map(|(index, text)| {
            message(text.get()).map_err(|error| {
                let dot = if error.location().is_empty() { "" } else { "." };
                let field = format!("messages[{index}]{dot}{}", error.location());
                ApiError::from(siskin::Error::new(error.kind(), field, error.message()))
            })
        })
        .collect()
}

/// Parses a message, also one that a response contained.
fn message(text: &str) -> siskin::Result<Message> {
    let mut fields = JsonFields::read(text)?;
    fields.ignore_null();
    let role: String = fields.take_required("role")?;
    let role = match role.as_str() {
        "developer" => "system",
        "system" | "user" | "assistant" => role.as_str(),
        other => {
            let message =
                format!("`{other}` is not supported; expected system, developer, user or assistant");
            return Err(siskin::Error::argument("role", message));
        }
    };
    let calls: Option<Vec<IgnoredAny>> = fields.take("tool_calls")?;
    if calls.is_some_and(|calls| !calls.is_empty()) {
        return Err(siskin::Error::argument("tool_calls", "tool calls are not supported yet"));
    }
    let refusal: Option<String> = fields.take("refusal")?;
    let content: Option<&RawValue> = fields.take("content")?;
    let content = match content {
        Some(content) => text_of(content)?,
        None => refusal.ok_or_else(|| siskin::Error::argument("content", "missing"))?,
    };
    // Not a part of the prompt.
    fields.ignore(&["name", "annotations", "reasoning_content"]);
    fields.finish()?;
    Ok(Message::new(role, content))
}

/// Returns the text of a message's content: a string, or text parts, which are joined by line breaks.
fn text_of(content: &RawValue) -> siskin::Result<String> {
    let invalid = |message: String| siskin::Error::argument("content", message);
    if let Ok(text) = serde_json::from_str(content.get()) {
        return Ok(text);
    }
    let parts: Vec<ContentPart> = serde_json::from_str(content.get())
        .map_err(|error| invalid(format!("expected a string or a list of text parts: {error}")))?;
    let text = |part: ContentPart| match (part.kind.as_str(), part.text) {
        ("text", Some(text)) => Ok(text),
        ("text", None) => Err(invalid("a text part has no `text`".to_owned())),
        (kind, _) => Err(invalid(format!("parts of type `{kind}` are not supported; expected `text`"))),
    };
    Ok(parts.into_iter().map(text).collect::<siskin::Result<Vec<_>>>()?.join("\n"))
}

/// Writes the objects of a response.
struct ChatRenderer {
    header: ResponseHeader,
    has_log_probabilities: bool,
}

impl ChatRenderer {
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

    /// Waits for all choices.
    async fn whole(&self, mut choices: Choices) -> Result<Response, ApiError> {
        let count = choices.count();
        let (mut texts, mut reasons) = (vec![String::new(); count], vec![""; count]);
        let mut entries: Vec<Vec<Value>> = vec![Vec::new(); count];
        while let Some(event) = choices.next_event().await {
            match event? {
                (index, ChoiceEvent::Token { token, text, top }) => {
                    texts[index].push_str(&text);
                    if self.has_log_probabilities {
                        let tokenizer = choices.model().model.tokenizer().ok();
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
            let log_probabilities = match self.has_log_probabilities {
                true => json!({"content": content, "refusal": null}),
                false => Value::Null,
            };
            json!({
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": null},
                "logprobs": log_probabilities,
                "finish_reason": reasons[index],
            })
        };
        let list: Vec<Value> = texts.into_iter().enumerate().map(choice).collect();
        let mut object = self.object(&choices, "chat.completion", &list.into());
        object["usage"] = choices.usage();
        Ok(response::json(StatusCode::OK, &object))
    }
}

impl ChunkRenderer for ChatRenderer {
    fn render(&mut self, choices: &Choices, index: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let (text, entry, finish_reason) = match event {
            ChoiceEvent::Token { token, text, top } => {
                let tokenizer = choices.model().model.tokenizer().ok();
                let entry = || log_probabilities::chat_entry(tokenizer, token, &top);
                (text, self.has_log_probabilities.then(entry), None)
            }
            ChoiceEvent::End { text, finish_reason } => (text, None, Some(finish_reason)),
        };
        if !text.is_empty() || entry.is_some() {
            let log_probabilities =
                entry.map_or(Value::Null, |entry| json!({"content": [entry], "refusal": null}));
            chunks.push_back(self.chunk(choices, index, &json!({"content": text}), log_probabilities, None));
        }
        if finish_reason.is_some() {
            chunks.push_back(self.chunk(choices, index, &json!({}), Value::Null, finish_reason));
        }
    }

    fn empty_chunk(&self, choices: &Choices) -> Value {
        self.object(choices, "chat.completion.chunk", &json!([]))
    }
}
