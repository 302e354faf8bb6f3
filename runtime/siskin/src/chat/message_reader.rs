//! The message of a response while it is generated.

use super::ResponseParser;
use siskin_chat_template::{Message, ResponseEvent};

/// Collects the message of a response from its text.
pub struct MessageReader {
    parser: ResponseParser,
    message: Message,
    is_finished: bool,
}

impl MessageReader {
    /// Creates a reader for a response.
    pub fn new(parser: ResponseParser) -> Self {
        let message = Message { role: "assistant".to_owned(), ..Message::default() };
        Self { parser, message, is_finished: false }
    }

    /// Reads the next text, and calls `each` with its events. Text after the end is ignored.
    pub fn push(&mut self, text: &str, each: &mut dyn FnMut(&ResponseEvent)) {
        if !self.is_finished {
            let events = self.parser.push(text);
            self.append(events, each);
        }
    }

    /// Ends the response, and calls `each` with the events that were pending.
    pub fn finish(&mut self, each: &mut dyn FnMut(&ResponseEvent)) {
        if !std::mem::replace(&mut self.is_finished, true) {
            let events = self.parser.finish();
            self.append(events, each);
        }
    }

    fn append(&mut self, events: Vec<ResponseEvent>, each: &mut dyn FnMut(&ResponseEvent)) {
        for event in events {
            each(&event);
            self.message.append(event);
        }
    }

    /// Returns the message as far as it was read.
    pub fn message(&self) -> &Message {
        &self.message
    }
}
