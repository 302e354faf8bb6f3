//! Incremental parsers of tool calls: one for each syntax.

mod gemma;
mod json;
mod named;
mod tagged;

pub(super) use json::JsonScanner;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::tool_format::{CallSyntax, ToolFormat};
use crate::response_event::ResponseEvent;

/// The types of the tools' parameters, by tool and parameter.
pub type ParameterTypes = HashMap<String, HashMap<String, ParameterType>>;

/// How a parameter is written where values have no quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// As it is: it is a string.
    Text,
    /// As JSON.
    Json,
}

/// Parses the calls between two delimiters.
pub(super) trait CallParser: Send + Sync {
    /// Parses the beginning of `text`, which follows what was consumed. With `is_end`, no more text follows.
    fn advance(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> CallProgress;
}

/// How much of a text was parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallProgress {
    /// So many bytes; the rest must be seen again with more text.
    More(usize),
    /// So many bytes, and all calls are complete.
    Done(usize),
    /// It is not a call from here on.
    Invalid(usize),
}

/// Collects the events of calls.
#[derive(Debug, Default)]
pub(super) struct CallEvents {
    pub(super) events: Vec<ResponseEvent>,
    /// The number of calls that have begun.
    pub(super) count: usize,
    /// Whether the last call is incomplete.
    pub(super) is_open: bool,
}

impl CallEvents {
    pub(super) fn begin(&mut self, name: &str, id: Option<&str>) {
        let (name, id) = (name.to_owned(), id.map(str::to_owned));
        self.events.push(ResponseEvent::ToolCall { index: self.count, id, name });
        self.count += 1;
        self.is_open = true;
    }

    /// Ends the last call.
    pub(super) fn end(&mut self) {
        self.is_open = false;
    }

    /// Appends the events of another list, which continues this one.
    pub(super) fn append(&mut self, more: Self) {
        self.events.extend(more.events);
        (self.count, self.is_open) = (more.count, more.is_open);
    }

    /// Appends to the arguments of the last call.
    pub(super) fn arguments(&mut self, text: &str) {
        if !text.is_empty() && self.count > 0 {
            let (index, text) = (self.count - 1, text.to_owned());
            self.events.push(ResponseEvent::ToolArguments { index, text });
        }
    }
}

/// Returns a parser for the text after the beginning of a call.
pub(super) fn parser(format: &ToolFormat, types: &Arc<ParameterTypes>) -> Option<Box<dyn CallParser>> {
    Some(match format.syntax {
        CallSyntax::Object(keys) => Box::new(json::JsonCalls::object(keys)),
        CallSyntax::List(keys) => Box::new(json::JsonCalls::list(keys)),
        CallSyntax::Named(call) => Box::new(named::NamedCallParser::new(call)),
        CallSyntax::Tagged(tags) => Box::new(tagged::TaggedCallParser::new(tags, Arc::clone(types))),
        CallSyntax::Gemma { quote } => Box::new(gemma::GemmaCallParser::new(quote)),
        // Has a parser for whole responses.
        CallSyntax::Harmony => return None,
    })
}

/// Returns the types of the parameters of JSON Schemas, by the names of their tools.
pub fn parameter_types<'s>(schemas: impl Iterator<Item = (&'s str, &'s str)>) -> ParameterTypes {
    let types = |schema: &str| -> HashMap<String, ParameterType> {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties.map(|(name, property)| (name.clone(), parameter_type(property))).collect()
    };
    schemas.map(|(name, schema)| (name.to_owned(), types(schema))).collect()
}

/// Returns the type of a parameter: text if nothing but strings are valid.
pub fn parameter_type(schema: &Value) -> ParameterType {
    let is_text = match (&schema["type"], &schema["enum"], &schema["const"]) {
        (Value::String(kind), ..) => kind == "string",
        (_, Value::Array(values), _) => values.iter().all(Value::is_string),
        (_, _, value) => value.is_string(),
    };
    if is_text { ParameterType::Text } else { ParameterType::Json }
}

/// Returns whether a text can be the name of a tool.
fn is_name(text: &str) -> bool {
    let is_valid = |letter: char| letter.is_alphanumeric() || "_-.:/".contains(letter);
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(is_valid)
}

/// Returns the value of a parameter in JSON, as it was written without quotes.
fn unquoted_value(text: &str, kind: Option<ParameterType>) -> String {
    let is_json = || serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
    match kind {
        Some(ParameterType::Text) => Value::from(text).to_string(),
        _ if is_json() => text.trim().to_owned(),
        _ => Value::from(text).to_string(),
    }
}

/// Returns the number of bytes at the end of `text` that may be the beginning of `marker`.
pub(super) fn held_back(text: &str, marker: &str) -> usize {
    let longest = marker.len().saturating_sub(1).min(text.len());
    (1..=longest).rev().find(|&length| text.as_bytes().ends_with(&marker.as_bytes()[..length])).unwrap_or(0)
}

/// Returns the number of bytes of white space at the beginning of a text.
pub(super) fn leading_space(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// What a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The marker.
    Marker,
    /// What may become the marker with more text.
    Unknown,
    /// Something else.
    Other,
}

/// Returns whether a text begins with `marker`.
pub(super) fn beginning(text: &str, marker: &str, is_end: bool) -> Beginning {
    if text.starts_with(marker) {
        Beginning::Marker
    } else if !is_end && marker.starts_with(text) {
        Beginning::Unknown
    } else {
        Beginning::Other
    }
}

/// The maximum number of bytes of a name or a key.
const MAX_NAME_BYTES: usize = 1024;
