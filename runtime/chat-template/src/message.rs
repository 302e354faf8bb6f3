//! Messages of a conversation.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use siskin_format::{Error, JsonFields, Result};

use crate::response_event::ResponseEvent;

/// Between the text parts of a message where a template expects one text.
const PART_SEPARATOR: &str = "\n";

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The role of the speaker: usually `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The content, which is empty for an assistant message that only calls tools.
    pub content: Vec<ContentPart>,
    /// What an assistant thought before it wrote the content. Most templates leave it out of earlier turns.
    pub reasoning_content: Option<String>,
    /// The tools that an assistant message calls.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message is the result of.
    pub tool_call_id: Option<String>,
    /// The name of the tool or of the speaker.
    pub name: Option<String>,
}

/// A part of a message's content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentPart {
    /// Text.
    Text(String),
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifies the call among those of a conversation; tool messages name it.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments: JSON, usually an object.
    pub arguments: String,
}

impl Message {
    /// Creates a message of one text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        let content = vec![ContentPart::Text(content.into())];
        Self { role: role.into(), content, ..Self::default() }
    }

    /// Creates the result of a tool call.
    pub fn tool_result(tool_call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(tool_call_id.into()), ..Self::new("tool", content) }
    }

    /// Returns the text of the content; line breaks separate its parts.
    pub fn text(&self) -> Cow<'_, str> {
        match self.content.as_slice() {
            [] => Cow::Borrowed(""),
            [ContentPart::Text(text)] => Cow::Borrowed(text),
            parts => {
                let texts: Vec<&str> = parts.iter().map(|ContentPart::Text(text)| text.as_str()).collect();
                Cow::Owned(texts.join(PART_SEPARATOR))
            }
        }
    }

    /// Parses a JSON list of messages in OpenAI's form, the value of the field `name`; see [`Message::read_json`].
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) if the text is not such a list, or a message has further
    /// fields, which would be ignored.
    pub fn list_from_json(name: &str, text: &str) -> Result<Vec<Self>> {
        // Only templates have a use for messages.
        if !crate::FEATURE.is_there {
            return Err(crate::FEATURE.missing());
        }
        if !crate::TOOLS.is_there {
            let messages: Vec<TextMessage> =
                serde_json::from_str(text).map_err(|error| Error::argument(name, error.to_string()))?;
            return Ok(messages
                .into_iter()
                .map(|message| Self::new(message.role, message.content))
                .collect());
        }
        let list: Vec<&RawValue> =
            serde_json::from_str(text).map_err(|error| Error::argument(name, error.to_string()))?;
        let message = |(index, text): (usize, &&RawValue)| {
            let message = JsonFields::read(text.get()).and_then(|mut fields| {
                let message = Self::read_json(&mut fields)?;
                fields.finish().map(|()| message)
            });
            message.map_err(|error| error.within_field(&format!("{name}[{index}]")))
        };
        list.iter().enumerate().map(message).collect()
    }

    /// Appends a part of a response.
    pub fn append(&mut self, event: ResponseEvent) {
        match event {
            ResponseEvent::Reasoning(text) => self.reasoning_content.get_or_insert_default().push_str(&text),
            ResponseEvent::Content(text) => match self.content.last_mut() {
                Some(ContentPart::Text(content)) => content.push_str(&text),
                None => self.content.push(ContentPart::Text(text)),
            },
            ResponseEvent::ToolCall { id, name, .. } => {
                self.tool_calls.push(ToolCall { id, name, arguments: String::new() });
            }
            ResponseEvent::ToolArguments { index, text } => {
                if let Some(call) = self.tool_calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
        }
    }

    /// Returns the message in OpenAI's form.
    pub fn to_json(&self) -> serde_json::Value {
        let text = self.text();
        let content = if text.is_empty() && !self.tool_calls.is_empty() { None } else { Some(text) };
        let mut message = json!({"role": self.role, "content": content});
        let optional = [
            ("reasoning_content", &self.reasoning_content),
            ("tool_call_id", &self.tool_call_id),
            ("name", &self.name),
        ];
        for (key, text) in optional {
            if let Some(text) = text {
                message[key] = text.as_str().into();
            }
        }
        if !self.tool_calls.is_empty() {
            message["tool_calls"] = self.tool_calls.iter().map(ToolCall::to_json).collect();
        }
        message
    }

    /// Takes a message from the fields of a JSON object: `role`, `content` (a string, a list of parts, or null),
    /// `reasoning_content`, `tool_calls`, `tool_call_id` and `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument), located at the field. Content is required of messages
    /// without tool calls.
    pub fn read_json(fields: &mut JsonFields<'_>) -> Result<Self> {
        fields.ignore_null();
        let role = fields.take_required("role")?;
        let calls: Vec<&RawValue> = fields.take("tool_calls")?.unwrap_or_default();
        let call = |(index, call): (usize, &&RawValue)| {
            ToolCall::read_json(call.get())
                .map_err(|error| error.within_field(&format!("tool_calls[{index}]")))
        };
        let tool_calls: Vec<ToolCall> = calls.iter().enumerate().map(call).collect::<Result<_>>()?;
        let content: Option<&RawValue> = fields.take("content")?;
        let content = match content {
            Some(content) => ContentPart::list_from_json(content.get())?,
            None if !tool_calls.is_empty() => Vec::new(),
            None => return Err(Error::argument("content", "missing")),
        };
        Ok(Self {
            role,
            content,
            reasoning_content: fields.take("reasoning_content")?,
            tool_calls,
            tool_call_id: fields.take("tool_call_id")?,
            name: fields.take("name")?,
        })
    }
}

/// A message in JSON where there are no tools, which takes less code.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextMessage {
    role: String,
    content: String,
}

/// The type of a part of a message's content in JSON.
#[derive(Deserialize)]
struct JsonPartType {
    #[serde(rename = "type")]
    kind: String,
}

/// A part with text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonPart {
    #[serde(rename = "type")]
    _kind: String,
    text: String,
}

impl ContentPart {
    /// Parses content: a string, or a list of parts.
    fn list_from_json(json: &str) -> Result<Vec<Self>> {
        let invalid = |message: String| Error::argument("content", message);
        if let Ok(text) = serde_json::from_str(json) {
            return Ok(vec![Self::Text(text)]);
        }
        let expected =
            |error: serde_json::Error| invalid(format!("expected a string or a list of text parts: {error}"));
        let types: Vec<JsonPartType> = serde_json::from_str(json).map_err(expected)?;
        if let Some(other) = types.iter().find(|part| part.kind != "text") {
            let message = format!("parts of type `{}` are not supported; expected `text`", other.kind);
            return Err(invalid(message));
        }
        let parts: Vec<JsonPart> = serde_json::from_str(json).map_err(expected)?;
        Ok(parts.into_iter().map(|part| Self::Text(part.text)).collect())
    }
}

/// The function of a tool call in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonFunction<'a> {
    name: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

impl ToolCall {
    /// Returns the call in OpenAI's form.
    pub fn to_json(&self) -> serde_json::Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }

    /// Parses `{"id": …, "type": "function", "function": {"name": …, "arguments": …}}`. The arguments are JSON in a string,
    /// or an object.
    fn read_json(json: &str) -> Result<Self> {
        let mut fields = JsonFields::read(json)?;
        fields.ignore_null();
        let kind: Option<String> = fields.take("type")?;
        if let Some(kind) = kind.filter(|kind| kind != "function") {
            let message = format!("`{kind}` is not supported; expected function");
            return Err(Error::argument("type", message));
        }
        let function: JsonFunction<'_> = fields.take_required("function")?;
        let id = fields.take("id")?;
        fields.ignore(&["index"]);
        fields.finish()?;
        let arguments = function.arguments.get();
        let arguments: String = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.to_owned());
        // Some clients send nothing for a tool without parameters.
        let is_empty = arguments.trim().is_empty() || arguments == "null";
        let arguments = if is_empty { "{}".to_owned() } else { arguments };
        Ok(Self { id, name: function.name, arguments })
    }
}
