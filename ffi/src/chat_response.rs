//! The message of a response in a chat.

#[cfg(feature = "tools")]
use siskin::chat::{ResponseEvent, ResponseParser};
use siskin::template::Message;

use crate::error::{Outcome, PendingError, SISKIN_ERROR_STATE};

/// A response whose text is split into reasoning, content and tool calls. Without tools there is none.
pub(crate) struct ChatResponse {
    #[cfg(feature = "tools")]
    parser: ResponseParser,
    #[cfg(not(feature = "tools"))]
    parser: std::convert::Infallible,
    message: Message,
    /// The end was parsed.
    #[cfg(feature = "tools")]
    is_finished: bool,
    /// The message in JSON.
    json: String,
}

impl ChatResponse {
    #[cfg(feature = "tools")]
    pub(crate) fn new(parser: ResponseParser) -> Self {
        let message = Message { role: "assistant".to_owned(), ..Message::default() };
        Self { parser, message, is_finished: false, json: String::new() }
    }

    /// Parses the next text of the response, and replaces it by the content in it. `is_end`: it is the last; any text after
    /// it is ignored.
    #[cfg(feature = "tools")]
    pub(crate) fn read(&mut self, text: &mut String, is_end: bool) {
        if std::mem::replace(&mut self.is_finished, is_end) {
            self.is_finished = true;
            text.clear();
            return;
        }
        let mut events = self.parser.push(text);
        if is_end {
            events.extend(self.parser.finish());
        }
        text.clear();
        for event in events {
            if let ResponseEvent::Content(content) = &event {
                text.push_str(content);
            }
            self.message.append(event);
        }
    }

    #[cfg(not(feature = "tools"))]
    pub(crate) fn read(&mut self, _: &mut String, _: bool) {
        match self.parser {}
    }

    /// Returns the message of a response in JSON, with a NUL. Without a chat, the error names the function that starts
    /// one.
    pub(crate) fn json_of<'r>(response: &'r mut Option<Self>, function: &str) -> Outcome<&'r str> {
        let response = response.as_mut().ok_or_else(|| {
            let message = format!("no chat; start a response with {function} first");
            PendingError::new(SISKIN_ERROR_STATE, "message", message)
        })?;
        response.json = response.message.to_json().to_string();
        response.json.push('\0');
        Ok(&response.json)
    }
}
