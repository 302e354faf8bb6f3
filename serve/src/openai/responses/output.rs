//! The output items of a response while they are generated, and the stream events of their parts.

use serde_json::{Value, json};
use siskin::chat::ResponseEvent;

use crate::generation::{CallIds, unique_id};

/// The output items of a response.
pub(super) struct OutputItems {
    ids: CallIds,
    complete: Vec<Value>,
    current: Option<CurrentItem>,
    /// Log-probabilities of tokens whose text is still to come.
    log_probabilities: Vec<Value>,
}

/// The item that is generated now.
struct CurrentItem {
    id: String,
    /// The text of a message or of reasoning, or the arguments of a call.
    text: String,
    log_probabilities: Vec<Value>,
    kind: ItemKind,
}

#[derive(Clone)]
enum ItemKind {
    Message,
    Reasoning,
    Call { call_id: String, name: String },
}

impl CurrentItem {
    /// Returns the item as the API has it.
    fn item(&self, status: &str) -> Value {
        match &self.kind {
            ItemKind::Call { call_id, name } => json!({
                "type": "function_call",
                "id": self.id,
                "call_id": call_id,
                "name": name,
                "arguments": self.text,
                "status": status,
            }),
            ItemKind::Message => json!({
                "type": "message",
                "id": self.id,
                "role": "assistant",
                "content": self.contents(status),
                "status": status,
            }),
            ItemKind::Reasoning => json!({
                "type": "reasoning",
                "id": self.id,
                "summary": [],
                "content": self.contents(status),
                "status": status,
            }),
        }
    }

    /// Returns the content parts: none before the first is announced.
    fn contents(&self, status: &str) -> Vec<Value> {
        if status == "in_progress" { Vec::new() } else { vec![self.part()] }
    }

    fn part(&self) -> Value {
        match self.kind {
            ItemKind::Reasoning => json!({"type": "reasoning_text", "text": self.text}),
            _ => json!({
                "type": "output_text",
                "text": self.text,
                "annotations": [],
                "logprobs": self.log_probabilities,
            }),
        }
    }

    /// Returns an event of this item.
    fn event(&self, kind: &str, output_index: usize, mut fields: Value) -> Value {
        fields["type"] = kind.into();
        fields["output_index"] = output_index.into();
        fields["item_id"] = self.id.as_str().into();
        if !matches!(self.kind, ItemKind::Call { .. }) {
            fields["content_index"] = 0.into();
        }
        fields
    }
}

impl OutputItems {
    pub(super) fn new(ids: CallIds) -> Self {
        Self { ids, complete: Vec::new(), current: None, log_probabilities: Vec::new() }
    }

    /// Adds the log-probability of the next token.
    pub(super) fn push_log_probability(&mut self, entry: Value) {
        self.log_probabilities.push(entry);
    }

    /// Adds a part of the response, and appends its events.
    pub(super) fn push(&mut self, event: ResponseEvent, events: &mut Vec<Value>) {
        match event {
            ResponseEvent::Content(text) => {
                self.need(ItemKind::Message, events);
                self.append(&text, events);
            }
            ResponseEvent::Reasoning(text) => {
                self.need(ItemKind::Reasoning, events);
                self.append(&text, events);
            }
            ResponseEvent::ToolCall { index, id, name } => {
                let call_id = self.ids.id(0, index, id.as_deref());
                self.begin(ItemKind::Call { call_id, name }, events);
            }
            ResponseEvent::ToolArguments { text, .. } => self.append(&text, events),
        }
    }

    /// Ends the last item. `status`: whether it is `completed`, or `incomplete`.
    pub(super) fn finish(&mut self, status: &str, events: &mut Vec<Value>) {
        if self.complete.is_empty() && self.current.is_none() {
            self.begin(ItemKind::Message, events);
        }
        self.end(status, events);
    }

    /// Returns the items that have ended.
    pub(super) fn complete(&self) -> &[Value] {
        &self.complete
    }

    /// Begins an item of this kind, unless the current one is.
    fn need(&mut self, kind: ItemKind, events: &mut Vec<Value>) {
        let same = |item: &CurrentItem| {
            matches!(
                (&item.kind, &kind),
                (ItemKind::Message, ItemKind::Message) | (ItemKind::Reasoning, ItemKind::Reasoning)
            )
        };
        if !self.current.as_ref().is_some_and(same) {
            self.begin(kind, events);
        }
    }

    fn begin(&mut self, kind: ItemKind, events: &mut Vec<Value>) {
        // The last token is that of the new item.
        let last = self.log_probabilities.pop();
        if matches!(kind, ItemKind::Call { .. }) {
            self.log_probabilities.clear();
        }
        self.end("completed", events);
        self.log_probabilities.extend(last.filter(|_| matches!(kind, ItemKind::Message)));
        let prefix = match kind {
            ItemKind::Message => "msg_",
            ItemKind::Reasoning => "rs_",
            ItemKind::Call { .. } => "fc_",
        };
        let item = CurrentItem {
            id: unique_id(prefix),
            text: String::new(),
            log_probabilities: Vec::new(),
            kind: kind.clone(),
        };
        let index = self.complete.len();
        events.push(json!({
            "type": "response.output_item.added",
            "output_index": index,
            "item": item.item("in_progress"),
        }));
        if !matches!(kind, ItemKind::Call { .. }) {
            let part = json!({"part": item.part()});
            events.push(item.event("response.content_part.added", index, part));
        }
        self.current = Some(item);
    }

    fn append(&mut self, text: &str, events: &mut Vec<Value>) {
        let Some(item) = &mut self.current else { return };
        item.text.push_str(text);
        // Those of reasoning and calls, and of the marks around them, are not log-probabilities of text.
        let log_probabilities = std::mem::take(&mut self.log_probabilities);
        let mut fields = json!({"delta": text});
        let kind = match item.kind {
            ItemKind::Message => {
                fields["logprobs"] = log_probabilities.as_slice().into();
                item.log_probabilities.extend(log_probabilities);
                "response.output_text.delta"
            }
            ItemKind::Reasoning => "response.reasoning_text.delta",
            ItemKind::Call { .. } => "response.function_call_arguments.delta",
        };
        events.push(item.event(kind, self.complete.len(), fields));
    }

    fn end(&mut self, status: &str, events: &mut Vec<Value>) {
        let Some(mut item) = self.current.take() else { return };
        let index = self.complete.len();
        // Those of tokens without text that follow a message belong to it.
        let log_probabilities = std::mem::take(&mut self.log_probabilities);
        if matches!(item.kind, ItemKind::Message) {
            item.log_probabilities.extend(log_probabilities);
        }
        let (kind, fields) = match &item.kind {
            ItemKind::Message => {
                ("response.output_text.done", json!({"text": item.text, "logprobs": item.log_probabilities}))
            }
            ItemKind::Reasoning => ("response.reasoning_text.done", json!({"text": item.text})),
            ItemKind::Call { name, .. } => {
                ("response.function_call_arguments.done", json!({"arguments": item.text, "name": name}))
            }
        };
        events.push(item.event(kind, index, fields));
        if !matches!(item.kind, ItemKind::Call { .. }) {
            events.push(item.event("response.content_part.done", index, json!({"part": item.part()})));
        }
        let whole = item.item(status);
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": whole}));
        self.complete.push(whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(events: &[Value]) -> Vec<&str> {
        events.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect()
    }

    #[test]
    fn parts_become_items_with_their_events() {
        let (mut items, mut events) = (OutputItems::new(CallIds::new("r", None)), Vec::new());
        items.push(ResponseEvent::Reasoning("hm".to_owned()), &mut events);
        items.push_log_probability(json!("of <"));
        items.push_log_probability(json!("of a"));
        items.push(ResponseEvent::Content("a".to_owned()), &mut events);
        items.push(ResponseEvent::Content("b".to_owned()), &mut events);
        let call = ResponseEvent::ToolCall { index: 0, id: None, name: "f".to_owned() };
        items.push(call, &mut events);
        items.push(ResponseEvent::ToolArguments { index: 0, text: "{}".to_owned() }, &mut events);
        items.finish("incomplete", &mut events);
        assert_eq!(
            kinds(&events),
            [
                "output_item.added",
                "content_part.added",
                "reasoning_text.delta",
                "reasoning_text.done",
                "content_part.done",
                "output_item.done",
                "output_item.added",
                "content_part.added",
                "output_text.delta",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "output_item.added",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.done",
            ]
        );
        let [reasoning, message, call] = items.complete() else { panic!("{:?}", items.complete()) };
        assert_eq!(reasoning["content"][0]["text"], "hm");
        assert_eq!(message["content"][0]["text"], "ab");
        assert_eq!(
            message["content"][0]["logprobs"],
            json!(["of a"]),
            "that of the mark before it is not of its text"
        );
        assert_eq!((&call["arguments"], &call["status"]), (&json!("{}"), &json!("incomplete")));
        assert_eq!(message["status"], "completed");
        let added = events.iter().filter(|event| event["type"] == "response.output_item.added");
        assert!(added.enumerate().all(|(index, event)| event["output_index"] == index));
    }

    #[test]
    fn an_empty_response_is_an_empty_message() {
        let (mut items, mut events) = (OutputItems::new(CallIds::new("r", None)), Vec::new());
        items.finish("completed", &mut events);
        assert_eq!(items.complete()[0]["content"][0]["text"], "");
    }
}
