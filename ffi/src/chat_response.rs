//! The message of a response in a chat.

#[cfg(feature = "tools")]
use siskin::chat::{ResponseEvent, ResponseParser};
use siskin::template::Message;

/// A response whose text is split into reasoning, content and tool calls. Without tools there is none.
pub(crate) struct ChatResponse {
    #[cfg(feature = "tools")]
    parser: ResponseParser,
    #[cfg(not(feature = "tools"))]
    parser: std::convert::Infallible,
    message: Message,
    /// The message in JSON.
    json: String,
}

impl ChatResponse {
    #[cfg(feature = "tools")]
    pub(crate) fn new(parser: ResponseParser) -> Self {
        let message = Message { role: "assistant".to_owned(), ..Message::default() };
        Self { parser, message, json: String::new() }
    }

    /// Parses the next text of the response, and replaces it by the content in it. `is_end`: it is the last.
    #[cfg(feature = "tools")]
    pub(crate) fn read(&mut self, text: &mut String, is_end: bool) {
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

    /// Returns the message in JSON, with a NUL.
    pub(crate) fn json(&mut self) -> &str {
        self.json = self.message.to_json().to_string();
        self.json.push('\0');
        &self.json
    }
}
