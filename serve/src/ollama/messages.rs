//! The messages of `/api/chat`.

use std::collections::VecDeque;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use siskin::Error;
use siskin::template::{ContentPart, Message, ToolCall};
use siskin_format::JsonFields;

use crate::error::ApiError;

/// The function of a tool call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalledFunction<'a> {
    #[serde(rename = "index")]
    _index: Option<u64>,
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// The maximum number of calls without a result: looking for one takes time in proportion.
const MAX_OPEN_CALLS: usize = 128;

/// Tool calls without a result, and how many calls there were.
#[derive(Default)]
struct OpenCalls {
    /// Ids and names.
    calls: VecDeque<(String, String)>,
    count: usize,
}

impl OpenCalls {
    /// Returns an id of nine letters and digits, which the templates of all models accept.
    fn next_id(&mut self) -> String {
        self.count += 1;
        format!("call{:05}", self.count)
    }

    fn push(&mut self, id: String, name: String) -> siskin::Result<()> {
        if self.calls.len() == MAX_OPEN_CALLS {
            let message = format!("more than {MAX_OPEN_CALLS} calls without a result");
            return Err(Error::argument("tool_calls", message));
        }
        self.calls.push_back((id, name));
        Ok(())
    }

    /// Returns the id of the first call of a tool, or of any tool if the result does not name one.
    fn result_of(&mut self, tool: Option<&str>) -> Option<String> {
        let is_named = |(_, name): &(String, String)| tool.is_none_or(|tool| tool == name);
        let position = self.calls.iter().position(is_named)?;
        self.calls.remove(position).map(|(id, _)| id)
    }
}

/// Returns the messages for the chat template. Calls and their results get ids, which they need not have in Ollama.
pub(super) fn messages(list: &[&RawValue]) -> Result<Vec<Message>, ApiError> {
    let mut open = OpenCalls::default();
    let message = |(index, text): (usize, &&RawValue)| {
        message(text.get(), &mut open)
            .map_err(|error| error.within_field(&format!("messages[{index}]")).into())
    };
    list.iter().enumerate().map(message).collect()
}

fn message(text: &str, open: &mut OpenCalls) -> siskin::Result<Message> {
    let mut fields = JsonFields::read(text)?;
    fields.ignore_null();
    let role: String = fields.take_required("role")?;
    if !["system", "user", "assistant", "tool"].contains(&role.as_str()) {
        let message = format!("`{role}` is not supported; expected system, user, assistant or tool");
        return Err(Error::argument("role", message));
    }
    reject_images(&mut fields)?;
    let content: String = fields.take("content")?.unwrap_or_default();
    let reasoning: Option<String> = fields.take("thinking")?;
    let calls: Vec<&RawValue> = fields.take("tool_calls")?.unwrap_or_default();
    let call = |(index, text): (usize, &&RawValue)| {
        tool_call(text.get(), open).map_err(|error| error.within_field(&format!("tool_calls[{index}]")))
    };
    let tool_calls: Vec<ToolCall> = calls.iter().enumerate().map(call).collect::<siskin::Result<_>>()?;
    let name: Option<String> = fields.take("tool_name")?;
    let given: Option<String> = fields.take("tool_call_id")?;
    fields.finish()?;
    let tool_call_id = match given {
        Some(id) => {
            open.calls.retain(|(open, _)| *open != id);
            Some(id)
        }
        None if role == "tool" => open.result_of(name.as_deref()),
        None => None,
    };
    Ok(Message {
        content: if content.is_empty() && !tool_calls.is_empty() {
            Vec::new()
        } else {
            vec![ContentPart::Text(content)]
        },
        role,
        reasoning_content: reasoning.filter(|text| !text.is_empty()),
        tool_calls,
        tool_call_id,
        name,
    })
}

fn tool_call(text: &str, open: &mut OpenCalls) -> siskin::Result<ToolCall> {
    let mut fields = JsonFields::read(text)?;
    fields.ignore_null();
    let id: Option<String> = fields.take("id")?;
    let kind: Option<String> = fields.take("type")?;
    if let Some(kind) = kind.filter(|kind| kind != "function") {
        return Err(Error::argument("type", format!("`{kind}` is not supported; expected function")));
    }
    let function: CalledFunction<'_> = fields.take_required("function")?;
    fields.finish()?;
    let arguments = function.arguments.map_or("{}", RawValue::get);
    if !arguments.starts_with('{') {
        return Err(Error::argument("function.arguments", "expected an object"));
    }
    let id = id.unwrap_or_else(|| open.next_id());
    open.push(id.clone(), function.name.clone())?;
    Ok(ToolCall { id: Some(id), name: function.name, arguments: arguments.to_owned() })
}

/// Rejects images, unless there are none.
pub(super) fn reject_images(fields: &mut JsonFields<'_>) -> siskin::Result<()> {
    let images: Option<Vec<IgnoredAny>> = fields.take("images")?;
    match images.is_some_and(|images| !images.is_empty()) {
        true => Err(Error::argument("images", "images are not supported")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_ids_of_calls() {
        let list = r#"[
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": [
                {"function": {"name": "f", "arguments": {"x": 1}}}, {"function": {"name": "g", "arguments": {}}}
            ]},
            {"role": "tool", "tool_name": "g", "content": "1"},
            {"role": "tool", "content": "2"},
            {"role": "tool", "content": "3"}
        ]"#;
        let list: Vec<&RawValue> = serde_json::from_str(list).unwrap();
        let messages = messages(&list).unwrap();
        let ids: Vec<_> = messages.iter().map(|message| message.tool_call_id.as_deref()).collect();
        assert_eq!(ids, [None, None, Some("call00002"), Some("call00001"), None]);
        assert_eq!(messages[1].tool_calls[0].arguments, r#"{"x": 1}"#);
    }
}
