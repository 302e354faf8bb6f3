//! The input of a response: a text, or items of a conversation.

use std::collections::HashSet;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use siskin::template::{Message, ToolCall};

use crate::error::ApiError;
use crate::generation::unique_id;

/// The input as messages, and as items with ids.
pub(super) struct ConversationInput {
    pub(super) messages: Vec<Message>,
    /// Ids and JSON of the items.
    pub(super) items: Vec<(String, String)>,
}

impl ConversationInput {
    pub(super) fn read(input: &RawValue) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_str(input.get())
            .map_err(|error| ApiError::invalid("input", error.to_string()))?;
        let list = match value {
            Value::String(text) => vec![
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
            ],
            Value::Array(items) => items,
            _ => return Err(ApiError::invalid("input", "expected a text, or a list of items")),
        };
        if list.is_empty() {
            return Err(ApiError::invalid("input", "expected at least one item"));
        }
        let (mut messages, mut items) = (Vec::<Message>::new(), Vec::with_capacity(list.len()));
        let mut ids = HashSet::new();
        let mut reasoning: Option<String> = None;
        for (index, mut item) in list.into_iter().enumerate() {
            let place = format!("input[{index}]");
            let read = read_item(&item, &place)?;
            match read {
                Item::Reasoning(text) => reasoning.get_or_insert_default().push_str(&text),
                Item::Message(mut message) => {
                    if message.role == "assistant" {
                        message.reasoning_content = reasoning.take();
                    }
                    messages.push(message);
                }
                Item::Call(call) => match messages.last_mut().filter(|message| message.role == "assistant") {
                    Some(message) => message.tool_calls.push(call),
                    None => messages.push(Message {
                        role: "assistant".to_owned(),
                        tool_calls: vec![call],
                        reasoning_content: reasoning.take(),
                        ..Message::default()
                    }),
                },
            }
            let id = match item.get("id") {
                None | Some(Value::Null) => unique_id("item_"),
                Some(Value::String(id)) if ids.insert(id.clone()) => id.clone(),
                Some(Value::String(_)) => {
                    return Err(ApiError::invalid(&format!("{place}.id"), "given twice"));
                }
                Some(_) => return Err(ApiError::invalid(&format!("{place}.id"), "expected a string")),
            };
            item["id"] = id.as_str().into();
            items.push((id, item.to_string()));
        }
        Ok(Self { messages, items })
    }
}

/// The fields of all items.
const FIELDS: [&str; 12] = [
    "type",
    "id",
    "status",
    "role",
    "content",
    "phase",
    "call_id",
    "name",
    "arguments",
    "output",
    "summary",
    "encrypted_content",
];

enum Item {
    Message(Message),
    Call(ToolCall),
    Reasoning(String),
}

fn read_item(item: &Value, place: &str) -> Result<Item, ApiError> {
    let object = item.as_object().ok_or_else(|| ApiError::invalid(place, "expected an object"))?;
    if let Some(unknown) = object.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(ApiError::invalid(&format!("{place}.{unknown}"), "unknown field"));
    }
    let text = |name: &str| {
        let text = item[name].as_str().map(str::to_owned);
        text.ok_or_else(|| ApiError::invalid(&format!("{place}.{name}"), "expected a string"))
    };
    match item["type"].as_str().unwrap_or("message") {
        "message" => {
            let role = match text("role")?.as_str() {
                "developer" | "system" => "system",
                "user" => "user",
                "assistant" => "assistant",
                other => {
                    let message =
                        format!("`{other}` is not supported; expected system, developer, user or assistant");
                    return Err(ApiError::invalid(&format!("{place}.role"), message));
                }
            };
            Ok(Item::Message(Message::new(role, content(&item["content"], &format!("{place}.content"))?)))
        }
        "function_call" => Ok(Item::Call(ToolCall {
            id: Some(text("call_id")?),
            name: text("name")?,
            arguments: text("arguments")?,
        })),
        "function_call_output" => {
            let output = content(&item["output"], &format!("{place}.output"))?;
            Ok(Item::Message(Message::tool_result(text("call_id")?, output)))
        }
        "reasoning" => {
            let parts = item["content"].as_array().into_iter().flatten();
            Ok(Item::Reasoning(parts.filter_map(|part| part["text"].as_str()).collect()))
        }
        other => Err(ApiError::invalid(&format!("{place}.type"), format!("`{other}` is not supported"))),
    }
}

/// Returns the text of a content: a string, or a list of text parts.
fn content(content: &Value, place: &str) -> Result<String, ApiError> {
    if let Some(text) = content.as_str() {
        return Ok(text.to_owned());
    }
    let parts = content
        .as_array()
        .ok_or_else(|| ApiError::invalid(place, "expected a string or a list of text parts"))?;
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        let text = match part["type"].as_str() {
            Some("input_text" | "output_text" | "text") => part["text"].as_str(),
            Some("refusal") => part["refusal"].as_str(),
            other => {
                let message = match other {
                    Some(other) => {
                        format!("content parts of type `{other}` are not supported; expected input_text")
                    }
                    None => "a content part without a type".to_owned(),
                };
                return Err(ApiError::invalid(place, message));
            }
        };
        all.push(text.ok_or_else(|| ApiError::invalid(place, "a part without text"))?);
    }
    Ok(all.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &Value) -> Result<ConversationInput, ApiError> {
        ConversationInput::read(&RawValue::from_string(input.to_string()).unwrap())
    }

    #[test]
    fn items_become_messages() {
        let input = read(&json!([
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
        ]))
        .unwrap();
        let roles: Vec<&str> = input.messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(input.messages[2].tool_calls.len(), 2);
        assert_eq!(input.messages[2].reasoning_content.as_deref(), Some("hm"));
        assert_eq!(input.messages[3].tool_call_id.as_deref(), Some("a"));
        assert!(input.items.iter().all(|(id, item)| !id.is_empty() && item.contains(id)));
        assert_eq!(input.items[2].0, "rs_1");
        assert_eq!(read(&json!("Hi")).unwrap().messages, [Message::new("user", "Hi")]);
    }

    #[test]
    fn wrong_items_are_errors() {
        for input in [
            json!(5),
            json!([]),
            json!([5]),
            json!([{"role": "critic", "content": ""}]),
            json!([{"role": "user"}]),
            json!([{"role": "user", "content": "", "x": []}]),
            json!([{"role": "user", "content": "", "id": 5}]),
            json!([{"role": "user", "content": "", "id": "a"}, {"role": "user", "content": "", "id": "a"}]),
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]),
            json!([{"type": "item_reference", "id": "x"}]),
            json!([{"type": "function_call", "name": "f", "arguments": "{}"}]),
        ] {
            assert!(read(&input).is_err(), "{input}");
        }
    }
}
