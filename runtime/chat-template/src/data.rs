//! The variables that the caller passes to a template.

use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::budget::{Budget, RenderError};
use super::message::{ContentPart, Message, ToolCall};
use super::text::SpannedText;
use super::value::{ELEMENT, ListKind, TemplateValue};
use siskin_format::{Error, Result};

/// Known roles. Any other role is as untrusted as the content of a message.
const ROLES: [&str; 14] = [
    "assistant",
    "context",
    "developer",
    "document",
    "documents",
    "environment",
    "function",
    "ipython",
    "model",
    "observation",
    "system",
    "tool",
    "tools",
    "user",
];

/// How a template expects messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageStyle {
    /// The content of a message is a list of parts instead of a text.
    pub content_parts: bool,
    /// The arguments of tool calls are JSON in a text instead of an object.
    pub arguments_as_text: bool,
    /// Tools as JSON in a text, a variable of system messages.
    pub system_tools: Option<String>,
}

/// Messages, tools, documents or any other variable of a template: JSON that preserves the order of keys, as templates
/// write tools to the prompt in the given order.
///
/// ```
/// use siskin_chat_template::{Message, TemplateData};
///
/// let messages = TemplateData::from_json(r#"[{"role": "user", "content": "Hi"}]"#)?;
/// assert_eq!(messages, TemplateData::from(&[Message::new("user", "Hi")]));
/// # Ok::<(), siskin_format::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TemplateData {
    pub(super) value: TemplateValue,
    /// The approximate size in memory, in bytes.
    pub(super) bytes: usize,
}

impl TemplateData {
    /// Parses JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) if the text is not valid JSON or is nested too deeply.
    pub fn from_json(text: &str) -> Result<Self> {
        if !crate::FEATURE.is_there {
            return Err(crate::FEATURE.missing());
        }
        serde_json::from_str(text).map_err(|error| Error::argument("json", error.to_string()))
    }

    /// Converts a parsed value, preserving the order of its keys.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) if it is nested too deeply.
    pub fn from_value(value: &serde_json::Value) -> Result<Self> {
        Self::deserialize(value).map_err(|error| Error::argument("json", error.to_string()))
    }

    /// The messages of a conversation, numbered from 0 as `Source::message` counts them.
    pub fn messages<'m>(messages: impl IntoIterator<Item = &'m Message>, style: &MessageStyle) -> Self {
        if !crate::FEATURE.is_there {
            return TemplateValue::None.into();
        }
        let messages = messages.into_iter().enumerate().map(|(number, message)| {
            // Arguments that are nested too deeply for a template are text.
            let deep = || MessageStyle { arguments_as_text: true, ..style.clone() };
            let message =
                Self::message(message, number, style).or_else(|_| Self::message(message, number, &deep()));
            message.unwrap_or_else(|_| TemplateValue::None.into())
        });
        Self::list(messages.collect()).unwrap_or_else(|_| TemplateValue::None.into())
    }

    fn message(
        message: &Message,
        number: usize,
        style: &MessageStyle,
    ) -> std::result::Result<Self, RenderError> {
        let mut entries: Vec<(Arc<str>, Self)> = vec![("role".into(), Self::role(&message.role))];
        let content = match style.content_parts {
            true => Self::content_parts(message)?,
            false => Self::text(SpannedText::content(message.text(), number)),
        };
        entries.push(("content".into(), content));
        let texts = [
            ("reasoning_content", &message.reasoning_content),
            // In gpt-oss's template.
            ("thinking", &message.reasoning_content),
            ("tool_call_id", &message.tool_call_id),
            ("name", &message.name),
        ];
        for (key, text) in texts {
            entries.extend(text.as_deref().map(|text| (key.into(), text.into())));
        }
        let system_tools = style.system_tools.as_deref().filter(|_| message.role == "system");
        entries.extend(system_tools.map(|tools| ("tools".into(), tools.into())));
        if !message.tool_calls.is_empty() {
            let tool_call = |call| Self::tool_call(call, style.arguments_as_text);
            let calls: std::result::Result<_, _> = message.tool_calls.iter().map(tool_call).collect();
            entries.push(("tool_calls".into(), Self::list(calls?)?));
        }
        Self::map(entries)
    }

    fn content_parts(message: &Message) -> std::result::Result<Self, RenderError> {
        let part = |ContentPart::Text(text): &ContentPart| {
            Self::map(vec![("type".into(), Self::trusted("text")), ("text".into(), text.as_str().into())])
        };
        let parts: std::result::Result<_, _> = message.content.iter().map(part).collect();
        Self::list(parts?)
    }

    fn tool_call(call: &ToolCall, arguments_as_text: bool) -> std::result::Result<Self, RenderError> {
        let arguments = match arguments_as_text {
            true => None,
            false => Self::from_json(&call.arguments).ok(),
        };
        let arguments = arguments.unwrap_or_else(|| call.arguments.as_str().into());
        let function = vec![("name".into(), call.name.as_str().into()), ("arguments".into(), arguments)];
        let mut entries: Vec<(Arc<str>, Self)> = Vec::new();
        entries.extend(call.id.as_deref().map(|id| ("id".into(), id.into())));
        entries.push(("type".into(), Self::trusted("function")));
        entries.push(("function".into(), Self::map(function)?));
        Self::map(entries)
    }

    /// Returns whether this is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.value, TemplateValue::List(..))
    }

    fn list(parts: Vec<TemplateData>) -> std::result::Result<Self, RenderError> {
        let bytes = parts.iter().map(|part| part.bytes).fold(ELEMENT, usize::saturating_add);
        let value = TemplateValue::list(parts.into_iter().map(|part| part.value).collect(), ListKind::List)?;
        Ok(Self { value, bytes })
    }

    /// Creates trusted text: the text of one of the model's special tokens, such as BOS.
    pub(super) fn trusted(text: &str) -> Self {
        Self::text(SpannedText::trusted(text))
    }

    /// Creates a role, which is trusted if it is one of [`ROLES`]: templates build control tokens such as `<|user|>`
    /// from it.
    fn role(text: &str) -> Self {
        Self::text(if ROLES.contains(&text) {
            SpannedText::trusted(text)
        } else {
            SpannedText::untrusted(text)
        })
    }

    fn text(text: SpannedText) -> Self {
        Self { bytes: text.size() + ELEMENT, value: TemplateValue::Text(text) }
    }

    fn map(entries: Vec<(Arc<str>, TemplateData)>) -> std::result::Result<Self, RenderError> {
        let size = |(key, part): &(Arc<str>, TemplateData)| part.bytes + ELEMENT + key.len();
        let bytes = entries.iter().map(size).fold(ELEMENT, usize::saturating_add);
        let entries = entries.into_iter().map(|(key, part)| {
            let part = match &part.value {
                TemplateValue::Text(text) if &*key == "role" => Self::role(text).value,
                _ => part.value,
            };
            (TemplateValue::Text(SpannedText::untrusted(key)), part)
        });
        Ok(Self {
            value: TemplateValue::map(entries.collect(), &mut Budget::new(u64::MAX, u64::MAX))?,
            bytes,
        })
    }
}

impl PartialEq for TemplateData {
    fn eq(&self, other: &Self) -> bool {
        let mut budget = Budget::new(u64::MAX, u64::MAX);
        super::value::equal(&self.value, &other.value, &mut budget).unwrap_or(false)
    }
}

impl From<TemplateValue> for TemplateData {
    fn from(value: TemplateValue) -> Self {
        Self { value, bytes: ELEMENT }
    }
}

impl From<bool> for TemplateData {
    fn from(truth: bool) -> Self {
        TemplateValue::Bool(truth).into()
    }
}

impl From<i64> for TemplateData {
    fn from(number: i64) -> Self {
        TemplateValue::Int(number).into()
    }
}

impl From<f64> for TemplateData {
    fn from(number: f64) -> Self {
        TemplateValue::Float(number).into()
    }
}

impl From<&str> for TemplateData {
    fn from(text: &str) -> Self {
        Self::text(SpannedText::untrusted(text))
    }
}

impl From<&[Message]> for TemplateData {
    fn from(messages: &[Message]) -> Self {
        Self::messages(messages, &MessageStyle::default())
    }
}

impl<const COUNT: usize> From<&[Message; COUNT]> for TemplateData {
    fn from(messages: &[Message; COUNT]) -> Self {
        Self::from(messages.as_slice())
    }
}

impl<'de> Deserialize<'de> for TemplateData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(DataVisitor)
    }
}

struct DataVisitor;

impl<'de> Visitor<'de> for DataVisitor {
    type Value = TemplateData;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<TemplateData, E> {
        Ok(TemplateValue::None.into())
    }

    fn visit_bool<E>(self, truth: bool) -> std::result::Result<TemplateData, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<TemplateData, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> std::result::Result<TemplateData, E> {
        Ok(i64::try_from(number).map_or_else(|_| (number as f64).into(), TemplateData::from))
    }

    fn visit_f64<E>(self, number: f64) -> std::result::Result<TemplateData, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<TemplateData, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<TemplateData, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = access.next_element()? {
            parts.push(part);
        }
        TemplateData::list(parts).map_err(|failure| A::Error::custom(failure.0))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> std::result::Result<TemplateData, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, part)) = access.next_entry::<String, TemplateData>()? {
            entries.push((key.into(), part));
        }
        TemplateData::map(entries).map_err(|failure| A::Error::custom(failure.0))
    }
}
