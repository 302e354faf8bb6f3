//! Splits a response into reasoning, content and tool calls while it is generated.

use std::sync::Arc;

use super::call_parser::{
    self, Beginning, CallEvents, CallParser, CallProgress, ParameterTypes, beginning, held_back,
    leading_space,
};
use super::harmony::HarmonyParser;
use super::reasoning::ReasoningTags;
use super::response_event::ResponseEvent;
use super::tool_format::{CallSyntax, PYTHON_TAG, ToolFormat};

/// Splits a response. White space around reasoning and before tool calls is dropped; what looks like a call but is none
/// is content.
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
    /// White space that is only content if more content follows.
    space: String,
    /// Whether white space is dropped until content begins.
    drops_space: bool,
    /// The text of the call that is parsed, as long as none has begun in it.
    call_text: String,
    parser: Option<Box<dyn CallParser>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// At the beginning of the response.
    Start,
    /// At the beginning of the reasoning.
    ReasoningStart,
    Reasoning,
    /// At the beginning of the content.
    ContentStart,
    Content,
    /// In a call.
    Call,
    /// After a call.
    AfterCall,
}

impl ResponseParser {
    /// Creates a parser. With `is_reasoning`, the response begins inside reasoning.
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
                phase: if is_reasoning { Phase::ReasoningStart } else { Phase::Start },
                buffer: String::new(),
                space: String::new(),
                drops_space: reasoning.is_some(),
                call_text: String::new(),
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

    /// Returns whether a tool call has begun.
    pub fn has_tool_calls(&self) -> bool {
        self.calls.count > 0
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
        let mut buffer = std::mem::take(&mut self.buffer) + text;
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
        if is_end && !self.has_calls(calls) {
            self.flush_space(calls);
        }
    }

    fn has_calls(&self, calls: &CallEvents) -> bool {
        calls.count > 0
    }

    /// Parses the beginning of `text`. Returns its length; `None`: more text is needed.
    fn step(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        match self.phase {
            Phase::Start => self.start(text, is_end),
            Phase::ReasoningStart | Phase::Reasoning => self.reasoning(text, is_end, calls),
            Phase::ContentStart | Phase::Content => self.content(text, is_end, calls),
            Phase::Call => self.call(text, is_end, calls),
            Phase::AfterCall => self.after_call(text, is_end),
        }
    }

    fn start(&mut self, text: &str, is_end: bool) -> Option<usize> {
        let space = leading_space(text);
        let rest = &text[space..];
        let found = match self.reasoning {
            Some(tags) => beginning(rest, tags.begin.trim_end(), is_end),
            None => Beginning::Other,
        };
        match found {
            Beginning::Marker => {
                self.phase = Phase::ReasoningStart;
                Some(space + self.reasoning?.begin.trim_end().len())
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
        if self.phase == Phase::ReasoningStart {
            let space = leading_space(text);
            if space < text.len() || is_end {
                self.phase = Phase::Reasoning;
            }
            return Some(space);
        }
        let found = text.find(end);
        let held = if is_end { 0 } else { held_back(text, end) };
        let shown = text[..found.unwrap_or(text.len() - held)].trim_end();
        if !shown.is_empty() {
            calls.events.push(ResponseEvent::Reasoning(shown.to_owned()));
        }
        match found {
            Some(start) => {
                self.phase = Phase::ContentStart;
                self.drops_space = true;
                Some(start + end.len())
            }
            None => (!shown.is_empty()).then_some(shown.len()),
        }
    }

    /// Returns the text that begins a call here.
    fn trigger(&self, text: &str, is_end: bool) -> Option<(usize, usize)> {
        let format = self.format?;
        let trigger = format.trigger();
        if !trigger.is_empty() {
            return text.find(trigger).map(|start| (start, trigger.len()));
        }
        // The whole response is a call.
        if self.phase != Phase::ContentStart || is_end && text.is_empty() {
            return None;
        }
        let start = leading_space(text);
        let tag = if text[start..].starts_with(PYTHON_TAG) { PYTHON_TAG.len() } else { 0 };
        text[start + tag..].trim_start().starts_with('{').then_some((start, tag))
    }

    fn content(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        if self.drops_space {
            let space = leading_space(text);
            self.drops_space = space == text.len();
            if space > 0 {
                return Some(space);
            }
        }
        if self.phase == Phase::ContentStart && self.is_undecided(text, is_end) {
            return None;
        }
        let found = self.trigger(text, is_end);
        let trigger = self.format.map_or("", ToolFormat::trigger);
        let held = if is_end { 0 } else { held_back(text, trigger) };
        let length = found.map_or(text.len() - held, |(start, _)| start);
        let (shown, space) = match self.format {
            Some(_) => text[..length].split_at(text[..length].trim_end().len()),
            None => (&text[..length], ""),
        };
        if !shown.is_empty() {
            let shown = std::mem::take(&mut self.space) + shown;
            calls.events.push(ResponseEvent::Content(shown));
        }
        self.space.push_str(space);
        if self.phase == Phase::ContentStart && length > 0 {
            self.phase = Phase::Content;
        }
        if let Some((_, marker)) = found {
            let format = self.format?;
            self.parser = call_parser::parser(format, &self.types);
            self.call_text = text[length..length + marker].to_owned();
            self.phase = if format.section.begin.is_empty() { Phase::Call } else { Phase::AfterCall };
            return Some(length + marker);
        }
        (length > 0).then_some(length)
    }

    /// Returns whether it is not known yet if a response is a call from its start.
    fn is_undecided(&self, text: &str, is_end: bool) -> bool {
        let whole = self.format.is_some_and(|format| format.trigger().is_empty());
        let text = text.trim_start();
        whole
            && !is_end
            && (PYTHON_TAG.starts_with(text)
                || text.strip_prefix(PYTHON_TAG).is_some_and(|rest| rest.trim().is_empty()))
    }

    fn call(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> Option<usize> {
        let before = calls.count;
        let progress = self.parser.as_mut()?.advance(text, is_end, calls);
        match progress {
            CallProgress::More(length) => {
                if calls.count == 0 || before == calls.count && !self.call_text.is_empty() {
                    self.call_text.push_str(&text[..length]);
                }
                if calls.count > before {
                    self.call_text.clear();
                }
                if is_end && length < text.len() {
                    return self.not_a_call(text, calls);
                }
                (length > 0).then_some(length)
            }
            CallProgress::Done(length) => {
                self.call_text.clear();
                self.phase = Phase::AfterCall;
                Some(length)
            }
            CallProgress::Invalid => self.not_a_call(text, calls),
        }
    }

    /// Makes content of what looked like a call; of a call that has begun only the rest.
    fn not_a_call(&mut self, text: &str, calls: &mut CallEvents) -> Option<usize> {
        let start = std::mem::take(&mut self.call_text);
        let shown = std::mem::take(&mut self.space) + &start + text;
        if !shown.is_empty() {
            calls.events.push(ResponseEvent::Content(shown));
        }
        self.parser = None;
        self.phase = Phase::Content;
        Some(text.len())
    }

    /// Skips what is between calls and after the last one.
    fn after_call(&mut self, text: &str, is_end: bool) -> Option<usize> {
        let format = self.format?;
        let space = leading_space(text);
        let rest = &text[space..];
        let ends = [format.call.end.trim(), format.section.end.trim(), ","];
        for end in ends.into_iter().filter(|end| !end.is_empty()) {
            match beginning(rest, end, is_end) {
                Beginning::Marker => return Some(space + end.len()),
                Beginning::Unknown => return None,
                Beginning::Other => {}
            }
        }
        let begin = format.call.begin.trim();
        match beginning(rest, begin, is_end) {
            Beginning::Marker if !begin.is_empty() => {
                self.parser = call_parser::parser(format, &self.types);
                begin.clone_into(&mut self.call_text);
                self.phase = Phase::Call;
                return Some(space + begin.len());
            }
            Beginning::Unknown => return None,
            Beginning::Marker | Beginning::Other => {}
        }
        self.phase = Phase::Content;
        Some(space)
    }

    fn flush_space(&mut self, calls: &mut CallEvents) {
        let space = std::mem::take(&mut self.space);
        if !space.is_empty() {
            calls.events.push(ResponseEvent::Content(space));
        }
    }
}
