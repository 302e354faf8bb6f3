//! Calls with an element for each argument, such as `<parameter=city>Paris</parameter>`.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Beginning, CallEvents, CallParser, CallProgress, MAX_NAME_BYTES, ParameterTypes, beginning, held_back,
    is_name, leading_space, unquoted_value,
};
use crate::tools::tool_format::CallTags;

/// Parses the elements of a call. White space around the tags is not required. The arguments are a JSON object: those of
/// string type as strings, others as the JSON that was written.
pub(super) struct TaggedCallParser {
    tags: CallTags,
    types: Arc<ParameterTypes>,
    name: Option<String>,
    /// The number of arguments.
    count: usize,
    /// How many bytes of the value that is incomplete were searched for its end.
    searched: usize,
}

/// A part of a call at the beginning of a text, and its length.
enum Element {
    Argument { key: String, value: String, length: usize },
    End(usize),
    Incomplete,
    Invalid,
}

impl TaggedCallParser {
    pub(super) fn new(tags: CallTags, types: Arc<ParameterTypes>) -> Self {
        Self { tags, types, name: None, count: 0, searched: 0 }
    }

    /// Parses the name at the beginning of `text`; returns it with the length of what it was parsed from.
    fn read_name(&self, text: &str, is_end: bool) -> Result<Option<(String, usize)>, ()> {
        let start = leading_space(text);
        let rest = &text[start..];
        let begin = self.tags.name.begin;
        match beginning(rest, begin, is_end) {
            Beginning::Marker => {}
            Beginning::Unknown => return Ok(None),
            Beginning::Other => return Err(()),
        }
        let rest = &rest[begin.len()..];
        let end = self.tags.name.end.trim();
        let is_last = |letter: char| letter == '\n' || letter == '<';
        let found = if end.is_empty() { rest.find(is_last) } else { rest.find(end) };
        let Some(length) = found else {
            return if is_end || rest.len() > MAX_NAME_BYTES { Err(()) } else { Ok(None) };
        };
        let name = rest[..length].trim();
        if !is_name(name) {
            return Err(());
        }
        Ok(Some((name.to_owned(), start + begin.len() + length + end.len())))
    }

    /// Parses an argument or the end of the call at the beginning of `text`.
    fn read_element(&mut self, text: &str, is_end: bool) -> Element {
        let space = leading_space(text);
        let rest = &text[space..];
        let CallTags { key, value, end, .. } = self.tags;
        let after_key = match beginning(rest, key.begin, is_end) {
            Beginning::Unknown => return Element::Incomplete,
            Beginning::Marker => &rest[key.begin.len()..],
            // The end, or that of the whole call if this syntax has none.
            Beginning::Other => {
                return match beginning(rest, end, is_end) {
                    Beginning::Marker => Element::End(space + end.len()),
                    Beginning::Unknown => Element::Incomplete,
                    Beginning::Other => Element::Invalid,
                };
            }
        };
        let Some((name, after_key)) = after_key.split_once(key.end.trim()) else {
            let is_long = after_key.len() > MAX_NAME_BYTES;
            return if is_end || is_long { Element::Invalid } else { Element::Incomplete };
        };
        let begin = value.begin;
        let body = match begin {
            "" => after_key.strip_prefix('\n').unwrap_or(after_key),
            begin => {
                let trimmed = after_key.trim_start();
                match beginning(trimmed, begin, is_end) {
                    Beginning::Marker => &trimmed[begin.len()..],
                    Beginning::Unknown => return Element::Incomplete,
                    Beginning::Other => return Element::Invalid,
                }
            }
        };
        let end = value.end.trim();
        let Some(found) = body.get(self.searched..).and_then(|rest| rest.find(end)) else {
            self.searched = body.len() - held_back(body, end);
            return if is_end { Element::Invalid } else { Element::Incomplete };
        };
        let (body, after) = body.split_at(self.searched + found);
        let after = &after[end.len()..];
        self.searched = 0;
        let body = if value.end.starts_with('\n') { body.strip_suffix('\n').unwrap_or(body) } else { body };
        let length = text.len() - after.len();
        Element::Argument { key: name.trim().to_owned(), value: body.to_owned(), length }
    }
}

impl CallParser for TaggedCallParser {
    fn advance(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> CallProgress {
        let mut at = 0;
        if self.name.is_none() {
            let (name, length) = match self.read_name(text, is_end) {
                Ok(Some(found)) => found,
                Ok(None) => return CallProgress::More(0),
                Err(()) => return CallProgress::Invalid(0),
            };
            calls.begin(&name, None);
            (self.name, at) = (Some(name), length);
        }
        loop {
            match self.read_element(&text[at..], is_end) {
                Element::Argument { key, value, length } => {
                    let name = self.name.as_deref().unwrap_or_default();
                    let kind = self.types.get(name).and_then(|types| types.get(&key)).copied();
                    let separator = if self.count == 0 { "{" } else { ", " };
                    let value = unquoted_value(&value, kind);
                    calls.arguments(&format!("{separator}{}: {value}", Value::from(key)));
                    self.count += 1;
                    at += length;
                }
                Element::End(length) => {
                    calls.arguments(if self.count == 0 { "{}" } else { "}" });
                    calls.end();
                    return CallProgress::Done(at + length);
                }
                Element::Incomplete => return CallProgress::More(at),
                Element::Invalid => return CallProgress::Invalid(at),
            }
        }
    }
}
