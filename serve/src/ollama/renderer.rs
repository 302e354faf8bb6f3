//! The responses of `/api/generate` and `/api/chat`, whole and as chunks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use siskin::chat::{ChatPrompt, ResponseEvent, ResponseParser};
use siskin::serving::StreamTimes;

use crate::error::{ApiError, ErrorFormat};
use crate::generation::{CallIds, ChoiceEvent, Choices, ChunkRenderer, token_entry, unique_id};
use crate::response::{self, Response};
use crate::time::rfc3339_now;

/// The route of a request, which determines the form of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRoute {
    Generate,
    Chat,
}

/// Writes the objects of a response.
pub(super) struct ResponseRenderer {
    route: TextRoute,
    model_name: String,
    /// When the request arrived.
    start: Instant,
    /// When it was submitted to the engine.
    submitted: Instant,
    has_log_probabilities: bool,
    /// Splits the text of a chat; `None`: all text is content.
    parser: Option<ResponseParser>,
    calls: CallReader,
}

/// Collects the parts of tool calls.
struct CallReader {
    ids: CallIds,
    current: Option<PartialCall>,
}

/// A tool call whose arguments may be incomplete.
struct PartialCall {
    index: usize,
    id: Option<String>,
    name: String,
    arguments: String,
}

/// A part of a response.
#[derive(Default)]
struct ResponsePart {
    content: String,
    thinking: String,
    calls: Vec<Value>,
    log_probabilities: Vec<Value>,
}

/// The end of a response.
struct ResponseEnd {
    reason: &'static str,
    times: StreamTimes,
}

impl CallReader {
    fn begin(&mut self, call: PartialCall, part: &mut ResponsePart) {
        self.end(part);
        self.current = Some(call);
    }

    /// Appends the current call to `part`. Arguments that are incomplete, or no object, are content.
    fn end(&mut self, part: &mut ResponsePart) {
        let Some(PartialCall { index, id, name, arguments }) = self.current.take() else { return };
        match serde_json::from_str::<Map<String, Value>>(&arguments) {
            Ok(arguments) => {
                let function = json!({"index": index, "name": name, "arguments": arguments});
                let id = self.ids.id(0, index, id.as_deref());
                part.calls.push(json!({"id": id, "function": function}));
            }
            Err(_) => part.content.push_str(&format!("{name}{arguments}")),
        }
    }
}

impl ResponsePart {
    fn is_empty(&self) -> bool {
        self.content.is_empty()
            && self.thinking.is_empty()
            && self.calls.is_empty()
            && self.log_probabilities.is_empty()
    }

    fn append(&mut self, other: Self) {
        self.content.push_str(&other.content);
        self.thinking.push_str(&other.thinking);
        self.calls.extend(other.calls);
        self.log_probabilities.extend(other.log_probabilities);
    }

    fn read(&mut self, events: Vec<ResponseEvent>, reader: &mut CallReader) {
        for event in events {
            match event {
                ResponseEvent::Content(text) => self.content.push_str(&text),
                ResponseEvent::Reasoning(text) => self.thinking.push_str(&text),
                ResponseEvent::ToolCall { index, id, name } => {
                    reader.begin(PartialCall { index, id, name, arguments: String::new() }, self);
                }
                ResponseEvent::ToolArguments { text, .. } => {
                    if let Some(call) = &mut reader.current {
                        call.arguments.push_str(&text);
                    }
                }
            }
        }
    }
}

impl ResponseRenderer {
    /// Creates a renderer for a request to the model `model_name`, which arrived at `start`.
    pub(super) fn new(
        route: TextRoute,
        model_name: String,
        start: Instant,
        has_log_probabilities: bool,
    ) -> Self {
        Self {
            route,
            model_name,
            start,
            submitted: start,
            has_log_probabilities,
            parser: None,
            calls: CallReader { ids: CallIds::new("", None), current: None },
        }
    }

    /// Reads the response as the chat says.
    pub(super) fn with_chat(self, chat: &ChatPrompt) -> Self {
        let ids = CallIds::new(&unique_id("chat-"), chat.call_id_length());
        Self { parser: Some(chat.parser()), calls: CallReader { ids, current: None }, ..self }
    }

    /// Notes that the request was submitted to the engine.
    pub(super) fn submitted(self) -> Self {
        Self { submitted: Instant::now(), ..self }
    }

    /// Returns the response to a request without a prompt.
    pub(super) fn loaded(&self, reason: &str) -> Response {
        let mut object = self.object(ResponsePart::default());
        object["done"] = true.into();
        object["done_reason"] = reason.into();
        response::json(StatusCode::OK, &object)
    }

    /// Returns an object with a part of the response.
    fn object(&self, part: ResponsePart) -> Value {
        let ResponsePart { content, thinking, calls, log_probabilities } = part;
        let mut optional = Map::new();
        if !thinking.is_empty() {
            optional.insert("thinking".to_owned(), thinking.into());
        }
        if !calls.is_empty() {
            optional.insert("tool_calls".to_owned(), calls.into());
        }
        let mut object = Map::new();
        match self.route {
            TextRoute::Generate => {
                optional.insert("response".to_owned(), content.into());
                object = optional;
            }
            TextRoute::Chat => {
                optional.insert("role".to_owned(), "assistant".into());
                optional.insert("content".to_owned(), content.into());
                object.insert("message".to_owned(), optional.into());
            }
        }
        if !log_probabilities.is_empty() {
            object.insert("logprobs".to_owned(), log_probabilities.into());
        }
        object.insert("model".to_owned(), self.model_name.as_str().into());
        object.insert("created_at".to_owned(), rfc3339_now().into());
        object.insert("done".to_owned(), false.into());
        object.into()
    }

    /// Returns the last object.
    fn last(&self, choices: &Choices, part: ResponsePart, end: &ResponseEnd) -> Value {
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let ResponseEnd { reason, times } = end;
        let start = times.start.unwrap_or(times.end);
        let first = times.first_token.unwrap_or(times.end);
        let usage = choices.usage();
        let mut object = self.object(part);
        object["done"] = true.into();
        object["done_reason"] = (*reason).into();
        object["total_duration"] = nanoseconds(self.start.elapsed()).into();
        // Models are loaded before: this is how long the request was prepared, and waited.
        object["load_duration"] = nanoseconds(self.submitted - self.start + start).into();
        object["prompt_eval_count"] = usage.prompt_tokens.into();
        object["prompt_eval_duration"] = nanoseconds(first.saturating_sub(start)).into();
        object["eval_count"] = usage.generated_tokens.into();
        object["eval_duration"] = nanoseconds(times.end.saturating_sub(first)).into();
        object
    }

    /// Returns the part and the end of an event.
    fn take(&mut self, choices: &Choices, event: ChoiceEvent) -> (ResponsePart, Option<ResponseEnd>) {
        let mut part = ResponsePart::default();
        let (text, end) = match event {
            ChoiceEvent::Prompt { .. } => return (part, None),
            ChoiceEvent::Token { token, text, top } => {
                if self.has_log_probabilities {
                    let tokenizer = choices.model().model.tokenizer().ok();
                    part.log_probabilities.push(token_entry(tokenizer, token, &top));
                }
                (text, None)
            }
            ChoiceEvent::End { text, finish_reason, times, .. } => {
                (text, Some(ResponseEnd { reason: finish_reason, times }))
            }
        };
        let Some(parser) = &mut self.parser else {
            part.content = text;
            return (part, end);
        };
        let mut events = parser.push(&text);
        if end.is_some() {
            events.extend(parser.finish());
        }
        part.read(events, &mut self.calls);
        if end.is_some() {
            self.calls.end(&mut part);
        }
        (part, end)
    }

    /// Waits for the whole response.
    pub(super) async fn whole(mut self, mut choices: Choices) -> Result<Response, ApiError> {
        let mut whole = ResponsePart::default();
        let mut last = None;
        while let Some(event) = choices.next_event().await {
            let (_, event) = event?;
            let (part, end) = self.take(&choices, event);
            whole.append(part);
            last = end;
        }
        let end = last.unwrap_or(ResponseEnd { reason: "stop", times: StreamTimes::default() });
        Ok(response::json(StatusCode::OK, &self.last(&choices, whole, &end)))
    }
}

impl ChunkRenderer for ResponseRenderer {
    fn render(&mut self, choices: &Choices, _: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let (part, end) = self.take(choices, event);
        if !part.is_empty() {
            chunks.push_back(self.object(part));
        }
        chunks.extend(end.map(|end| self.last(choices, ResponsePart::default(), &end)));
    }

    fn fail(&mut self, _: &Choices, error: &ApiError, chunks: &mut VecDeque<Value>) {
        chunks.push_back(error.body_in(ErrorFormat::Message));
    }
}
