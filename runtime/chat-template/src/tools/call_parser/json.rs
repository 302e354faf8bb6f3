//! Calls that are JSON objects, one or a list.

use super::{CallEvents, CallParser, CallProgress, MAX_NAME_BYTES};
use crate::tools::tool_format::CallKeys;

/// Parses `{"name": NAME, "arguments": ARGUMENTS}`, or a list of such objects. Arguments are returned as they were written.
pub(super) struct JsonCalls {
    keys: CallKeys,
    is_list: bool,
    stage: Stage,
    call: Call,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// The list.
    List,
    /// An object, or the end of an empty list.
    Object,
    /// The key of an entry, or the end of the object.
    Key,
    /// The next key.
    NextKey,
    Colon,
    Value,
    /// A comma or the end of the object.
    AfterValue,
    /// A comma or the end of the list.
    AfterObject,
}

/// The object that is parsed.
#[derive(Default)]
struct Call {
    name: Option<String>,
    id: Option<String>,
    has_begun: bool,
    has_arguments: bool,
    /// Arguments that came before the name.
    early_arguments: String,
    key: Key,
    scanner: JsonScanner,
    value: String,
    /// Whether the value is a string.
    is_quoted: bool,
}

/// The entry that is parsed.
#[derive(Clone, Copy, Default, PartialEq)]
enum Key {
    Name,
    Id,
    Arguments,
    #[default]
    Other,
}

impl JsonCalls {
    pub(super) fn object(keys: CallKeys) -> Self {
        Self { keys, is_list: false, stage: Stage::Object, call: Call::default() }
    }

    pub(super) fn list(keys: CallKeys) -> Self {
        Self { keys, is_list: true, stage: Stage::List, call: Call::default() }
    }

    fn key(&self, name: &str) -> Key {
        match name {
            name if name == self.keys.name => Key::Name,
            name if name == self.keys.arguments => Key::Arguments,
            "id" => Key::Id,
            _ => Key::Other,
        }
    }

    /// Parses one element at the beginning of `text`. Returns its length, `None` if it is incomplete. An error has the
    /// number of bytes before what is wrong.
    fn step(&mut self, text: &str, calls: &mut CallEvents) -> Result<Option<usize>, usize> {
        let Some(first) = text.bytes().next() else { return Ok(None) };
        if first.is_ascii_whitespace() && !(self.stage == Stage::Value && self.call.scanner.has_begun) {
            return Ok(Some(1));
        }
        self.stage = match (self.stage, first) {
            (Stage::List, b'[') => Stage::Object,
            (Stage::Object, b'{') => {
                self.call = Call::default();
                Stage::Key
            }
            (Stage::Colon, b':') => Stage::Value,
            (Stage::AfterValue, b',') => Stage::NextKey,
            (Stage::AfterObject, b',') => Stage::Object,
            (Stage::Key | Stage::NextKey, b'"') => {
                let Some(end) = string_end(text) else {
                    return if text.len() > MAX_NAME_BYTES { Err(0) } else { Ok(None) };
                };
                let name: String = serde_json::from_str(&text[..end]).map_err(|_| 0_usize)?;
                self.call.key = self.key(&name);
                self.call.scanner = JsonScanner::default();
                self.call.value.clear();
                self.stage = Stage::Colon;
                return Ok(Some(end));
            }
            (Stage::Key | Stage::AfterValue, b'}') => {
                self.call.end(calls).map_err(|()| 0_usize)?;
                Stage::AfterObject
            }
            (Stage::Value, _) => return self.value(text, calls).map(Some),
            _ => return Err(0),
        };
        Ok(Some(1))
    }

    /// Parses a part of a value, and returns its length.
    fn value(&mut self, text: &str, calls: &mut CallEvents) -> Result<usize, usize> {
        let call = &mut self.call;
        if !call.scanner.has_begun {
            if text.starts_with([',', ':', '}', ']']) {
                return Err(0);
            }
            call.is_quoted = text.starts_with('"');
        }
        let (length, is_complete) = call.scanner.scan(text);
        let part = &text[..length];
        // Arguments in a string are JSON in JSON.
        if call.key == Key::Arguments && !call.is_quoted {
            call.append_arguments(part, calls);
        } else if call.key != Key::Other {
            call.value.push_str(part);
        }
        if is_complete {
            call.end_value(calls).map_err(|()| length)?;
            self.stage = Stage::AfterValue;
        }
        Ok(length)
    }
}

impl Call {
    fn append_arguments(&mut self, text: &str, calls: &mut CallEvents) {
        self.has_arguments = true;
        match self.has_begun {
            true => calls.arguments(text),
            false => self.early_arguments.push_str(text),
        }
    }

    fn end_value(&mut self, calls: &mut CallEvents) -> Result<(), ()> {
        let text = std::mem::take(&mut self.value);
        match self.key {
            Key::Name => {
                self.name = Some(serde_json::from_str(&text).map_err(drop)?);
                self.begin(calls);
            }
            // Numbers are not unique in a conversation.
            Key::Id => self.id = serde_json::from_str(&text).ok(),
            Key::Arguments if self.is_quoted => {
                let arguments: String = serde_json::from_str(&text).map_err(drop)?;
                self.append_arguments(&arguments, calls);
            }
            Key::Arguments | Key::Other => {}
        }
        Ok(())
    }

    fn begin(&mut self, calls: &mut CallEvents) {
        if let Some(name) = self.name.as_ref().filter(|_| !self.has_begun) {
            calls.begin(name, self.id.as_deref());
            calls.arguments(&self.early_arguments);
            self.has_begun = true;
        }
    }

    fn end(&mut self, calls: &mut CallEvents) -> Result<(), ()> {
        if !self.has_begun {
            return Err(());
        }
        if !self.has_arguments {
            calls.arguments("{}");
        }
        calls.end();
        Ok(())
    }
}

impl CallParser for JsonCalls {
    fn advance(&mut self, text: &str, _is_end: bool, calls: &mut CallEvents) -> CallProgress {
        let mut at = 0;
        loop {
            if self.stage == Stage::AfterObject && !self.is_list {
                return CallProgress::Done(at);
            }
            if self.is_list && matches!(self.stage, Stage::Object | Stage::AfterObject) {
                let space = super::leading_space(&text[at..]);
                if text[at + space..].starts_with(']') {
                    return CallProgress::Done(at + space + 1);
                }
            }
            match self.step(&text[at..], calls) {
                Ok(Some(length)) => at += length,
                Ok(None) => return CallProgress::More(at),
                Err(length) => return CallProgress::Invalid(at + length),
            }
        }
    }
}

/// Finds the end of a JSON value without parsing it.
#[derive(Clone, Copy, Default)]
pub(in crate::tools) struct JsonScanner {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    pub(super) has_begun: bool,
    /// It is a number or a name, which ends before the next other character.
    is_bare: bool,
    is_complete: bool,
}

impl JsonScanner {
    /// Returns whether the value is complete.
    pub(in crate::tools) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns how many bytes of `text` belong to the value, and whether it is complete.
    pub(in crate::tools) fn scan(&mut self, text: &str) -> (usize, bool) {
        let (length, is_complete) = self.find_end(text);
        self.is_complete |= is_complete;
        (length, is_complete)
    }

    fn find_end(&mut self, text: &str) -> (usize, bool) {
        for (at, byte) in text.bytes().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => continue,
                }
                if self.depth == 0 && !self.in_string {
                    return (at + 1, true);
                }
                continue;
            }
            if self.is_bare && (b",}] \t\r\n".contains(&byte)) {
                return (at, true);
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (at + 1, true);
                    }
                }
                _ if !self.has_begun => self.is_bare = true,
                _ => {}
            }
            self.has_begun = true;
        }
        (text.len(), false)
    }
}

/// Returns the end of the JSON string that `text` begins with.
fn string_end(text: &str) -> Option<usize> {
    let (end, is_complete) = JsonScanner::default().scan(text);
    is_complete.then_some(end)
}
