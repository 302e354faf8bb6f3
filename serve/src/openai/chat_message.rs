//! The assistant's messages in responses, whole and as deltas.

use serde_json::{Value, json};
use siskin::chat::ResponseEvent;
use siskin::template::Message;

use crate::generation::CallIds;

/// Returns the message of a choice.
pub(super) fn message_object(ids: &CallIds, choice: usize, mut message: Message) -> Value {
    ids.assign(choice, &mut message);
    let mut message = message.to_json();
    message["refusal"] = Value::Null;
    message
}

/// Returns the delta of an event.
pub(super) fn delta(ids: &CallIds, choice: usize, event: &ResponseEvent) -> Value {
    match event {
        ResponseEvent::Reasoning(text) => json!({"reasoning_content": text}),
        ResponseEvent::Content(text) => json!({"content": text}),
        ResponseEvent::ToolCall { index, id, name } => {
            let id = ids.id(choice, *index, id.as_deref());
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        ResponseEvent::ToolArguments { index, text } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        }
    }
}
