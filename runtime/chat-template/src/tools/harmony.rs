//! Responses in OpenAI's Harmony format: messages with a header, `<|channel|>analysis<|message|>…<|end|><|start|>…`. The
//! prompt ends within the first header.

use super::call_parser::{CallEvents, JsonScanner, held_back};
use super::harmony_tokens::{CHANNEL, ENDS, MESSAGE, START};
use crate::response_event::ResponseEvent;

/// Before the name of a tool in a header.
const RECIPIENT: &str = "to=functions.";
/// The channel of reasoning.
const ANALYSIS: &str = "analysis";
/// The maximum number of bytes of a header.
const MAX_HEADER_BYTES: usize = 1024;

/// Splits a response into reasoning, content and tool calls.
#[derive(Default)]
pub(super) struct HarmonyParser {
    /// What was not parsed yet.
    buffer: String,
    part: Part,
    /// The arguments of the last call.
    scanner: JsonScanner,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Part {
    #[default]
    FirstHeader,
    Header,
    Reasoning,
    Content,
    Call {
        has_arguments: bool,
    },
}

impl HarmonyParser {
    pub(super) fn push(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) {
        self.buffer.push_str(text);
        let mut at = 0;
        while let Some(length) = self.step(at, is_end, calls) {
            at += length;
        }
        self.buffer.drain(..at);
        if is_end {
            self.end_call(calls);
        }
    }

    /// Ends a call, if the message is one.
    fn end_call(&mut self, calls: &mut CallEvents) {
        if let Part::Call { has_arguments } = self.part {
            if !has_arguments {
                calls.arguments("{}");
            }
            let is_complete = !has_arguments || self.scanner.is_complete();
            if is_complete {
                calls.end();
            }
        }
    }

    /// Parses what begins at `at`. Returns its length; `None`: more text is needed.
    fn step(&mut self, at: usize, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        let text = &self.buffer[at..];
        if text.is_empty() {
            return None;
        }
        match self.part {
            Part::FirstHeader | Part::Header => {
                let is_plain = self.part == Part::FirstHeader && !is_header(text);
                if let Some(length) = text.find(MESSAGE).filter(|_| !is_plain) {
                    self.part = read_header(&text[..length], calls);
                    self.scanner = JsonScanner::default();
                    return Some(length + MESSAGE.len());
                }
                // A response without headers is content.
                if is_plain || text.len() > MAX_HEADER_BYTES {
                    self.part = Part::Content;
                    return Some(0);
                }
                // A header that was cut.
                is_end.then_some(text.len())
            }
            part => {
                let found = ENDS.iter().filter_map(|end| Some((text.find(end)?, end.len()))).min();
                let held = ENDS.iter().map(|end| held_back(text, end)).max().unwrap_or(0);
                let length = found.map_or(text.len() - if is_end { 0 } else { held }, |(start, _)| start);
                let shown = &text[..length];
                if let Part::Call { .. } = part {
                    self.scanner.scan(shown);
                }
                self.part = append(part, shown, calls);
                match found {
                    Some((_, marker)) => {
                        self.end_call(calls);
                        self.part = Part::Header;
                        Some(length + marker)
                    }
                    None => (length > 0).then_some(length),
                }
            }
        }
    }
}

/// Returns whether a response begins with a header, or may.
fn is_header(text: &str) -> bool {
    let text = text.trim_start();
    [CHANNEL, START, MESSAGE, RECIPIENT]
        .iter()
        .any(|begin| text.starts_with(begin) || begin.starts_with(text))
}

/// Returns what the message after a header is; begins the call of a tool.
fn read_header(header: &str, calls: &mut CallEvents) -> Part {
    let is_end = |letter: char| letter.is_whitespace() || letter == '<';
    let word = |text: &str| text.split(is_end).next().unwrap_or_default().to_owned();
    if let Some((_, name)) = header.split_once(RECIPIENT) {
        let name = word(name);
        if !name.is_empty() {
            calls.begin(&name, None);
            return Part::Call { has_arguments: false };
        }
    }
    let channel = header.split_once(CHANNEL).map(|(_, channel)| word(channel.trim_start()));
    if channel.as_deref() == Some(ANALYSIS) { Part::Reasoning } else { Part::Content }
}

fn append(part: Part, text: &str, calls: &mut CallEvents) -> Part {
    if text.is_empty() {
        return part;
    }
    match part {
        Part::Reasoning => calls.events.push(ResponseEvent::Reasoning(text.to_owned())),
        Part::Call { .. } => {
            calls.arguments(text);
            return Part::Call { has_arguments: true };
        }
        Part::Content | Part::FirstHeader | Part::Header => {
            calls.events.push(ResponseEvent::Content(text.to_owned()));
        }
    }
    part
}
