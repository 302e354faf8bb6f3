//! The assistant's messages in responses, whole and as deltas.

use serde_json::{Value, json};
use siskin::chat::ResponseEvent;
use siskin::template::ToolCall;

/// The message of a choice that is not streamed.
#[derive(Default)]
pub(super) struct ChatMessage {
    content: String,
    reasoning: String,
    tool_calls: Vec<ToolCall>,
}

impl ChatMessage {
    pub(super) fn append(&mut self, events: Vec<ResponseEvent>) {
        for event in events {
            match event {
                ResponseEvent::Reasoning(text) => self.reasoning.push_str(&text),
                ResponseEvent::Content(text) => self.content.push_str(&text),
                ResponseEvent::ToolCall { id, name, .. } => {
                    self.tool_calls.push(ToolCall { id, name, arguments: String::new() });
                }
                ResponseEvent::ToolArguments { text, .. } => {
                    if let Some(call) = self.tool_calls.last_mut() {
                        call.arguments.push_str(&text);
                    }
                }
            }
        }
    }

    pub(super) fn into_json(self, ids: &CallIds, choice: usize) -> Value {
        let Self { content, reasoning, tool_calls } = self;
        let content = if content.is_empty() && !tool_calls.is_empty() { Value::Null } else { content.into() };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !tool_calls.is_empty() {
            let calls = tool_calls.into_iter().enumerate().map(|(index, call)| {
                let id = ids.id(choice, index, call.id.as_deref());
                ToolCall { id: Some(id), ..call }.to_json()
            });
            message["tool_calls"] = calls.collect();
        }
        message
    }
}

/// Gives ids to the tool calls of a response.
pub(super) struct CallIds {
    response: String,
    length: Option<usize>,
}

impl CallIds {
    /// Creates ids that no other response has: of `length` letters and digits if the model requires that.
    pub(super) fn new(response: &str, length: Option<usize>) -> Self {
        Self { response: response.to_owned(), length }
    }

    /// Returns the id of a call: the one that the model gave it, if it did.
    fn id(&self, choice: usize, index: usize, given: Option<&str>) -> String {
        const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        const LENGTH: usize = 24;
        if let Some(given) = given.filter(|id| !id.is_empty()) {
            return given.to_owned();
        }
        let hash = blake3::hash(format!("{}/{choice}/{index}", self.response).as_bytes());
        let letters = hash.as_bytes().iter().map(|&byte| LETTERS[usize::from(byte) % LETTERS.len()] as char);
        match self.length {
            Some(length) => letters.take(length).collect(),
            None => "call_".chars().chain(letters.take(LENGTH)).collect(),
        }
    }

    /// Returns the delta of an event.
    pub(super) fn delta(&self, choice: usize, event: &ResponseEvent) -> Value {
        match event {
            ResponseEvent::Reasoning(text) => json!({"reasoning_content": text}),
            ResponseEvent::Content(text) => json!({"content": text}),
            ResponseEvent::ToolCall { index, id, name } => {
                let id = self.id(choice, *index, id.as_deref());
                let function = json!({"name": name, "arguments": ""});
                json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
            }
            ResponseEvent::ToolArguments { index, text } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
        }
    }
}
