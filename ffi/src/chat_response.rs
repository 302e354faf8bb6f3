//! The message of a response in a chat.

#[cfg(feature = "tools")]
use siskin::chat::{MessageReader, ResponseEvent, ResponseParser};

use crate::error::{Outcome, PendingError, SISKIN_ERROR_STATE};

/// A response whose text is split into reasoning, content and tool calls. Without tools there is none.
pub(crate) struct ChatResponse {
    #[cfg(feature = "tools")]
    reader: MessageReader,
    #[cfg(not(feature = "tools"))]
    reader: std::convert::Infallible,
    /// The message in JSON.
    json: String,
}

impl ChatResponse {
    #[cfg(feature = "tools")]
    pub(crate) fn new(parser: ResponseParser) -> Self {
        Self { reader: MessageReader::new(parser), json: String::new() }
    }

    /// Reads the next text of the response, and replaces it by the content in it. `is_end`: it is the last; any text after
    /// it is ignored.
    #[cfg(feature = "tools")]
    pub(crate) fn read(&mut self, text: &mut String, is_end: bool) {
        let generated = std::mem::take(text);
        let mut each = |event: &ResponseEvent| {
            if let ResponseEvent::Content(content) = event {
                text.push_str(content);
            }
        };
        self.reader.push(&generated, &mut each);
        if is_end {
            self.reader.finish(&mut each);
        }
    }

    #[cfg(not(feature = "tools"))]
    pub(crate) fn read(&mut self, _: &mut String, _: bool) {
        match self.reader {}
    }

    /// Returns the message of a response in JSON, with a NUL. Without a chat, the error names the function that starts
    /// one.
    pub(crate) fn json_of<'r>(response: &'r mut Option<Self>, function: &str) -> Outcome<&'r str> {
        let response = response.as_mut().ok_or_else(|| {
            let message = format!("no chat; start a response with {function} first");
            PendingError::new(SISKIN_ERROR_STATE, "message", message)
        })?;
        response.write_json();
        Ok(&response.json)
    }

    #[cfg(feature = "tools")]
    fn write_json(&mut self) {
        self.json = self.reader.message().to_json().to_string();
        self.json.push('\0');
    }

    #[cfg(not(feature = "tools"))]
    fn write_json(&mut self) {
        match self.reader {}
    }
}
