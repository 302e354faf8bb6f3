//! Splits a response into reasoning, content and tool calls while it is generated.

use std::sync::Arc;

use super::call_parser::{
    self, Beginning, CallEvents, CallParser, CallProgress, ParameterTypes, beginning, held_back,
    leading_space,
};
use super::harmony::HarmonyParser;
use super::reasoning::ReasoningTags;
use super::tool_format::{CallSyntax, PYTHON_TAG, ToolFormat};
use crate::response_event::ResponseEvent;

/// The maximum number of bytes before the name of a tool: what is longer is no call.
const MAX_HEADER_BYTES: usize = 1 << 14;

/// Splits a response. White space around reasoning and before tool calls is dropped; what looks like a call but is none
/// is content. The result does not depend on how the text is split.
///
/// `siskin::Model::chat` creates it.
pub struct ResponseParser {
    splitter: Splitter,
    calls: CallEvents,
}

enum Splitter {
    Tags(TagSplitter),
    Harmony(HarmonyParser),
}

/// Splits a response whose parts are between tags.
struct TagSplitter {
    format: Option<&'static ToolFormat>,
    types: Arc<ParameterTypes>,
    reasoning: Option<ReasoningTags>,
    phase: Phase,
    /// What was not parsed yet.
    buffer: String,
    /// White space that only counts if more text of its kind follows.
    space: String,
    /// Whether white space is dropped until content begins.
    drops_space: bool,
    /// The parser of the call that has begun.
    parser: Option<Box<dyn CallParser>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// At the beginning of the response.
    Start,
    Reasoning,
    /// At the beginning of the content.
    ContentStart,
    Content,
    /// Before this text, which begins a call, or a section of calls.
    CallStart(&'static str),
    /// In the arguments of a call.
    Call,
    /// After a call.
    AfterCall,
}

impl ResponseParser {
    /// Creates a parser for a format and the types of the tools' parameters. With `is_reasoning`, the response begins
    /// inside reasoning.
    pub fn new(
        format: Option<&'static ToolFormat>,
        types: ParameterTypes,
        reasoning: Option<ReasoningTags>,
        is_reasoning: bool,
    ) -> Self {
        let splitter = match format {
            Some(ToolFormat { syntax: CallSyntax::Harmony, .. }) => {
                Splitter::Harmony(HarmonyParser::default())
            }
            _ => Splitter::Tags(TagSplitter {
                format,
                types: Arc::new(types),
                reasoning,
                phase: if is_reasoning { Phase::Reasoning } else { Phase::Start },
                buffer: String::new(),
                space: String::new(),
                drops_space: reasoning.is_some(),
                parser: None,
            }),
        };
        Self { splitter, calls: CallEvents::default() }
    }

    /// Parses the next part of the generated text, and returns what is known by now.
    pub fn push(&mut self, text: &str) -> Vec<ResponseEvent> {
        self.advance(text, false)
    }

    /// Returns the rest of the response after its end.
    pub fn finish(&mut self) -> Vec<ResponseEvent> {
        self.advance("", true)
    }

    /// Returns whether there are tool calls, and the last one is complete.
    pub fn has_complete_calls(&self) -> bool {
        self.calls.count > 0 && !self.calls.is_open
    }

    fn advance(&mut self, text: &str, is_end: bool) -> Vec<ResponseEvent> {
        match &mut self.splitter {
            Splitter::Tags(splitter) => splitter.push(text, is_end, &mut self.calls),
            Splitter::Harmony(parser) => parser.push(text, is_end, &mut self.calls),
        }
        std::mem::take(&mut self.calls.events)
    }
}

impl TagSplitter {
    fn push(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.push_str(text);
        let mut at = 0;
        loop {
            let phase = self.phase;
            let Some(length) = self.step(&buffer[at..], is_end, calls) else { break };
            at += length;
            if length == 0 && phase == self.phase {
                break;
            }
        }
        buffer.drain(..at);
        self.buffer = buffer;
        if is_end && calls.count == 0 && matches!(self.phase, Phase::ContentStart | Phase::Content) {
            self.emit_content("", calls);
        }
    }

    /// Parses the beginning of `text`. Returns its length; `None`: more text is needed.
    fn step(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        match self.phase {
            Phase::Start => self.start(text, is_end),
            Phase::Reasoning => self.reasoning(text, is_end, calls),
            Phase::ContentStart | Phase::Content => self.content(text, is_end, calls),
            Phase::CallStart(marker) => self.call_start(marker, text, is_end, calls),
            Phase::Call => self.call(text, is_end, calls),
            Phase::AfterCall => self.after_call(text, is_end),
        }
    }

    /// Emits content, with the white space before it.
    fn emit_content(&mut self, text: &str, calls: &mut CallEvents) {
        let shown = std::mem::take(&mut self.space) + text;
        if !shown.is_empty() {
            calls.events.push(ResponseEvent::Content(shown));
        }
    }

    /// Returns the length of the white space to drop at the beginning of `text`, if there is any.
    fn dropped_space(&mut self, text: &str) -> Option<usize> {
        if !self.drops_space {
            return None;
        }
        let space = leading_space(text);
        self.drops_space = space == text.len();
        (space > 0).then_some(space)
    }

    fn start(&mut self, text: &str, is_end: bool) -> Option<usize> {
        let Some(tags) = self.reasoning else {
            self.phase = Phase::ContentStart;
            return Some(0);
        };
        // White space before either is dropped.
        let space = leading_space(text);
        if space > 0 {
            return Some(space);
        }
        let begin = tags.begin.trim_end();
        match beginning(text, begin, is_end) {
            Beginning::Marker => {
                self.phase = Phase::Reasoning;
                Some(begin.len())
            }
            Beginning::Unknown => None,
            Beginning::Other => {
                self.phase = Phase::ContentStart;
                Some(0)
            }
        }
    }

    fn reasoning(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        let end = self.reasoning?.end;
        if let Some(space) = self.dropped_space(text) {
            return Some(space);
        }
        let found = text.find(end);
        let held = if is_end { 0 } else { held_back(text, end) };
        let length = found.unwrap_or(text.len() - held);
        let shown = text[..length].trim_end();
        if !shown.is_empty() {
            let shown = std::mem::take(&mut self.space) + shown;
            calls.events.push(ResponseEvent::Reasoning(shown));
        }
        self.space.push_str(&text[shown.len()..length]);
        if found.is_some() {
            self.phase = Phase::ContentStart;
            self.drops_space = true;
            self.space.clear();
            return Some(length + end.len());
        }
        (length > 0).then_some(length)
    }

    /// Finds the beginning of a call, and the text that it begins with.
    fn trigger(&self, text: &str) -> Option<(usize, &'static str)> {
        let format = self.format?;
        let trigger = format.trigger();
        if !trigger.is_empty() {
            return text.find(trigger).map(|start| (start, trigger));
        }
        // The whole response is a call.
        if self.phase != Phase::ContentStart {
            return None;
        }
        let start = leading_space(text);
        let tag = if text[start..].starts_with(PYTHON_TAG) { PYTHON_TAG } else { "" };
        text[start + tag.len()..].trim_start().starts_with('{').then_some((start, tag))
    }

    fn content(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        if let Some(space) = self.dropped_space(text) {
            return Some(space);
        }
        if self.phase == Phase::ContentStart && self.is_undecided(text, is_end) {
            return None;
        }
        let found = self.trigger(text);
        let trigger = self.format.map_or("", ToolFormat::trigger);
        let held = if is_end { 0 } else { held_back(text, trigger) };
        let length = found.map_or(text.len() - held, |(start, _)| start);
        let shown = match self.format {
            Some(_) => text[..length].trim_end(),
            None => &text[..length],
        };
        if !shown.is_empty() {
            self.emit_content(shown, calls);
        }
        self.space.push_str(&text[shown.len()..length]);
        if length > 0 {
            self.phase = Phase::Content;
        }
        if let Some((_, marker)) = found {
            self.phase = Phase::CallStart(marker);
            return Some(length);
        }
        (length > 0).then_some(length)
    }

    /// Returns whether it is not known yet if a response is a call from its start.
    fn is_undecided(&self, text: &str, is_end: bool) -> bool {
        let whole = self.format.is_some_and(|format| format.trigger().is_empty());
        let text = text.trim_start();
        let is_tag = |text: &str| text.strip_prefix(PYTHON_TAG).is_some_and(|rest| rest.trim().is_empty());
        whole && !is_end && (PYTHON_TAG.starts_with(text) || is_tag(text))
    }

    /// Parses up to the arguments of a call, from its beginning each time.
    fn call_start(
        &mut self,
        marker: &'static str,
        text: &str,
        is_end: bool,
        calls: &mut CallEvents,
    ) -> Option<usize> {
        let format = self.format?;
        let mut at = marker.len();
        if !format.section.begin.is_empty() && marker == format.trigger() {
            at += leading_space(&text[at..]);
            let begin = format.call.begin.trim_end();
            match beginning(&text[at..], begin, is_end) {
                Beginning::Marker => at += begin.len(),
                Beginning::Unknown => return None,
                Beginning::Other => return self.not_a_call(marker, text, calls),
            }
        }
        let mut parser = call_parser::parser(format, &self.types)?;
        let mut begun = CallEvents { count: calls.count, ..CallEvents::default() };
        let progress = parser.advance(&text[at..], is_end, &mut begun);
        let is_known = |event: &ResponseEvent| match event {
            ResponseEvent::ToolCall { name, .. } => self.types.contains_key(name),
            _ => true,
        };
        // Without delimiters, any JSON looks like a call.
        let is_call = begun.count > calls.count
            && (!format.trigger().is_empty() || begun.events.first().is_none_or(is_known));
        let length = match progress {
            _ if !is_call && begun.count > calls.count => return self.not_a_call(marker, text, calls),
            CallProgress::More(_) if !is_call => {
                let waits = !is_end && text.len() <= MAX_HEADER_BYTES;
                return if waits { None } else { self.not_a_call(marker, text, calls) };
            }
            CallProgress::Invalid(_) if !is_call => return self.not_a_call(marker, text, calls),
            progress => progress,
        };
        self.space.clear();
        calls.append(begun);
        self.parser = Some(parser);
        self.phase = Phase::Call;
        Some(at + self.progress(length, text.len() - at, is_end))
    }

    fn call(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        let progress = self.parser.as_mut()?.advance(text, is_end, calls);
        let length = self.progress(progress, text.len(), is_end);
        (length > 0 || self.phase != Phase::Call).then_some(length)
    }

    /// Returns how much of a text of `length` bytes a parser has read, and changes the phase if that is all.
    fn progress(&mut self, progress: CallProgress, length: usize, is_end: bool) -> usize {
        match progress {
            // The rest of a call that was cut is no content.
            CallProgress::More(_) | CallProgress::Invalid(_) if is_end => {
                self.phase = Phase::Content;
                length
            }
            CallProgress::More(length) => length,
            CallProgress::Done(length) => {
                self.phase = Phase::AfterCall;
                length
            }
            CallProgress::Invalid(length) => {
                self.phase = Phase::Content;
                length
            }
        }
    }

    /// Makes content of a text that begins no call.
    fn not_a_call(&mut self, marker: &str, text: &str, calls: &mut CallEvents) -> Option<usize> {
        self.phase = Phase::Content;
        // Something has to be consumed, or the same is found again.
        let first = text.chars().next().map_or(0, char::len_utf8);
        let length = if marker.is_empty() { first } else { marker.len() };
        self.emit_content(&text[..length], calls);
        Some(length)
    }

    /// Skips what is between calls and after the last one.
    fn after_call(&mut self, text: &str, is_end: bool) -> Option<usize> {
        let format = self.format?;
        let space = leading_space(text);
        let rest = &text[space..];
        let ends = [format.call.end.trim(), format.section.end.trim()];
        for end in ends.into_iter().filter(|end| !end.is_empty()) {
            match beginning(rest, end, is_end) {
                Beginning::Marker => return Some(space + end.len()),
                Beginning::Unknown => return None,
                Beginning::Other => {}
            }
        }
        let begin = format.call.begin.trim();
        self.phase = match beginning(rest, begin, is_end) {
            Beginning::Unknown => return None,
            Beginning::Marker if !begin.is_empty() => Phase::CallStart(begin),
            Beginning::Marker | Beginning::Other => Phase::Content,
        };
        Some(space)
    }
}
