//! Responses as objects, and as streams of events.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use siskin::chat::{ChatPrompt, ResponseEvent, ResponseParser};
use siskin::serving::StreamUsage;
use siskin::template::Message;

use super::output::OutputItems;
use crate::error::ApiError;
use crate::generation::{CallIds, ChoiceEvent, Choices, ChunkRenderer, token_entry, unique_id};
use crate::response::{self, Response};
use crate::response_store::StoredResponse;
use crate::state::ServerState;
use crate::time::unix_time;

/// Where a response is stored.
pub(super) struct Storage {
    pub(super) state: Arc<ServerState>,
    /// The name of the client's API key.
    pub(super) client: Option<String>,
    /// The messages before the response.
    pub(super) messages: Vec<Message>,
    /// What the request added to them.
    pub(super) input_items: Vec<(String, String)>,
}

/// Writes the objects and events of a response.
pub(super) struct ResponsesRenderer {
    id: String,
    created: u64,
    /// The fields of the object that the request determines.
    base: Map<String, Value>,
    has_log_probabilities: bool,
    parser: ResponseParser,
    ids: CallIds,
    output: OutputItems,
    /// The response as a message of the conversation.
    message: Message,
    reasoning_tokens: usize,
    storage: Option<Storage>,
    /// The number of events so far.
    events: u64,
}

impl ResponsesRenderer {
    pub(super) fn new(
        chat: &ChatPrompt,
        base: Map<String, Value>,
        has_log_probabilities: bool,
        storage: Option<Storage>,
    ) -> Self {
        // Without API keys, only those that a client was given give access to its responses.
        let secret = RandomState::new().build_hasher().finish();
        let id = format!("{}{secret:016x}", unique_id("resp_"));
        let ids = || CallIds::new(&id, chat.call_id_length());
        Self {
            output: OutputItems::new(ids()),
            ids: ids(),
            id,
            created: unix_time(),
            base,
            has_log_probabilities,
            parser: chat.parser(),
            message: Message { role: "assistant".to_owned(), ..Message::default() },
            reasoning_tokens: 0,
            storage,
            events: 0,
        }
    }

    /// Returns the events that begin the stream.
    pub(super) fn first_events(&mut self, choices: &Choices) -> VecDeque<Value> {
        let object = self.object(choices, "in_progress", Value::Null);
        let event = |kind: &str| json!({"type": kind, "response": object});
        let events = [event("response.created"), event("response.in_progress")];
        let mut chunks = VecDeque::new();
        self.number(events, &mut chunks);
        chunks
    }

    /// Waits for the whole response.
    pub(super) async fn whole(mut self, mut choices: Choices) -> Result<Response, ApiError> {
        let mut whole = Value::Null;
        while let Some(event) = choices.next_event().await {
            let (_, event) = event?;
            if let Some(object) = self.read(&choices, event, &mut Vec::new()) {
                whole = object;
            }
        }
        Ok(response::json(StatusCode::OK, &whole))
    }

    /// Reads an event and appends those of the stream. Returns the response at its end.
    fn read(&mut self, choices: &Choices, event: ChoiceEvent, events: &mut Vec<Value>) -> Option<Value> {
        match event {
            ChoiceEvent::Prompt { .. } => None,
            ChoiceEvent::Token { token, text, top } => {
                if self.has_log_probabilities {
                    let tokenizer = choices.model().model.tokenizer().ok();
                    self.output.push_log_probability(token_entry(tokenizer, token, &top));
                }
                let parts = self.parser.push(&text);
                let is_reasoning =
                    matches!(parts.as_slice(), [ResponseEvent::Reasoning(_), ..] if parts.len() == 1);
                self.reasoning_tokens += usize::from(is_reasoning);
                self.append(parts, events);
                None
            }
            ChoiceEvent::End { text, finish_reason, .. } => {
                let mut parts = self.parser.push(&text);
                parts.extend(self.parser.finish());
                self.append(parts, events);
                let status = if finish_reason == "length" { "incomplete" } else { "completed" };
                self.output.finish(status, events);
                let object = self.object(choices, status, Value::Null);
                self.store(&object);
                Some(object)
            }
        }
    }

    fn append(&mut self, parts: Vec<ResponseEvent>, events: &mut Vec<Value>) {
        for part in parts {
            self.message.append(part.clone());
            self.output.push(part, events);
        }
    }

    fn store(&mut self, object: &Value) {
        let Some(storage) = self.storage.take() else { return };
        let mut message = std::mem::take(&mut self.message);
        self.ids.assign(0, &mut message);
        let mut messages = storage.messages;
        messages.push(message);
        let Storage { state, client, input_items, .. } = storage;
        let stored = StoredResponse { client, messages, input_items, object: object.to_string() };
        state.responses().insert(&self.id, stored);
    }

    /// Returns the response as it is now.
    fn object(&self, choices: &Choices, status: &str, error: Value) -> Value {
        let mut object = self.base.clone();
        let is_over = status != "in_progress";
        let usage = if is_over { self.usage(choices.usage()) } else { Value::Null };
        let incomplete = match status {
            "incomplete" => json!({"reason": "max_output_tokens"}),
            _ => Value::Null,
        };
        let own = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": if status == "completed" { json!(unix_time()) } else { Value::Null },
            "status": status,
            "error": error,
            "incomplete_details": incomplete,
            "model": choices.model().name,
            "system_fingerprint": choices.model().fingerprint,
            "output": self.output.complete(),
            "usage": usage,
        });
        if let Value::Object(own) = own {
            object.extend(own);
        }
        object.into()
    }

    fn usage(&self, usage: StreamUsage) -> Value {
        json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.generated_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        })
    }

    /// Appends events with their numbers.
    fn number(&mut self, events: impl IntoIterator<Item = Value>, chunks: &mut VecDeque<Value>) {
        for mut event in events {
            event["sequence_number"] = self.events.into();
            self.events += 1;
            chunks.push_back(event);
        }
    }
}

impl ChunkRenderer for ResponsesRenderer {
    fn render(&mut self, choices: &Choices, _: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let mut events = Vec::new();
        if let Some(object) = self.read(choices, event, &mut events) {
            let kind = match object["status"].as_str() {
                Some("incomplete") => "response.incomplete",
                _ => "response.completed",
            };
            events.push(json!({"type": kind, "response": object}));
        }
        self.number(events, chunks);
    }

    fn fail(&mut self, choices: &Choices, error: &ApiError, chunks: &mut VecDeque<Value>) {
        let mut events = Vec::new();
        self.output.finish("incomplete", &mut events);
        let error = json!({"code": "server_error", "message": error.message()});
        let object = self.object(choices, "failed", error);
        events.push(json!({"type": "response.failed", "response": object}));
        self.number(events, chunks);
    }
}
