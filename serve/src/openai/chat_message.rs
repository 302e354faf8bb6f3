//! The assistant's messages in responses, whole and as deltas.

use serde_json::{Value, json};
use siskin::chat::ResponseEvent;
use siskin::template::Message;

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
        // Short ids that a model gives are not unique in a conversation.
        let is_usable = |id: &&str| self.length.map_or(id.len() >= 8, |length| id.len() == length);
        if let Some(given) = given.filter(is_usable) {
            return given.to_owned();
        }
        let hash = blake3::hash(format!("{}/{choice}/{index}", self.response).as_bytes());
        let letters = hash.as_bytes().iter().map(|&byte| LETTERS[usize::from(byte) % LETTERS.len()] as char);
        match self.length {
            Some(length) => letters.take(length).collect(),
            None => "call_".chars().chain(letters.take(LENGTH)).collect(),
        }
    }

    /// Returns the message of a choice.
    pub(super) fn message(&self, choice: usize, mut message: Message) -> Value {
        for (index, call) in message.tool_calls.iter_mut().enumerate() {
            call.id = Some(self.id(choice, index, call.id.as_deref()));
        }
        let mut message = message.to_json();
        message["refusal"] = Value::Null;
        message
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
