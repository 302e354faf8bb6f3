//! Gemma's calls: `call:NAME{KEY:VALUE,…}`, where strings are between special tokens.

use serde_json::Value;

use super::{CallEvents, CallParser, CallProgress};

/// The maximum nesting depth of values.
const MAX_DEPTH: usize = 64;

pub(super) struct GemmaCallParser {
    quote: &'static str,
    has_begun: bool,
    scanner: ValueScanner,
}

impl GemmaCallParser {
    pub(super) fn new(quote: &'static str) -> Self {
        Self { quote, has_begun: false, scanner: ValueScanner::default() }
    }

    /// Reads `call:NAME`, and returns its length.
    fn begin(&mut self, text: &str, calls: &mut CallEvents) -> Result<usize, GemmaError> {
        let mut reader = GemmaReader { text, at: 0, quote: self.quote };
        reader.skip_space();
        reader.expect("call:")?;
        let name = reader.until(&['{'])?.trim();
        if !super::is_name(name) {
            return Err(GemmaError::Invalid);
        }
        calls.begin(name, None);
        self.has_begun = true;
        Ok(reader.at)
    }
}

impl CallParser for GemmaCallParser {
    fn advance(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> CallProgress {
        let mut at = 0;
        if !self.has_begun {
            at = match self.begin(text, calls) {
                Ok(length) => length,
                Err(GemmaError::Incomplete) if !is_end => return CallProgress::More(0),
                Err(_) => return CallProgress::Invalid(0),
            };
        }
        let rest = &text[at..];
        let Some(length) = self.scanner.end(rest, self.quote, is_end) else { return CallProgress::More(at) };
        let mut reader = GemmaReader { text: &rest[..length], at: 0, quote: self.quote };
        match reader.value(0) {
            Ok(arguments) if reader.at == length => {
                calls.arguments(&arguments);
                calls.end();
                CallProgress::Done(at + length)
            }
            _ => CallProgress::Invalid(at),
        }
    }
}

/// Finds the end of an object in a text that grows.
#[derive(Default)]
struct ValueScanner {
    at: usize,
    depth: usize,
    in_text: bool,
}

impl ValueScanner {
    /// Returns the length of the object that `text` begins with, if it is complete.
    fn end(&mut self, text: &str, quote: &str, is_end: bool) -> Option<usize> {
        loop {
            let rest = &text[self.at..];
            if self.in_text {
                let Some(found) = rest.find(quote) else {
                    self.at = text.len() - super::held_back(rest, quote);
                    return None;
                };
                self.at += found + quote.len();
                self.in_text = false;
                continue;
            }
            let first = rest.chars().next()?;
            match super::beginning(rest, quote, is_end) {
                super::Beginning::Marker => {
                    self.at += quote.len();
                    self.in_text = true;
                    continue;
                }
                super::Beginning::Unknown => return None,
                super::Beginning::Other => {}
            }
            self.at += first.len_utf8();
            match first {
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth == 0 {
                return Some(self.at);
            }
        }
    }
}

enum GemmaError {
    Incomplete,
    Invalid,
}

/// Converts a value to JSON.
struct GemmaReader<'t> {
    text: &'t str,
    at: usize,
    quote: &'static str,
}

impl<'t> GemmaReader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Consumes `marker`, if it is next.
    fn skip(&mut self, marker: &str) -> Result<bool, GemmaError> {
        match super::beginning(self.rest(), marker, false) {
            super::Beginning::Marker => {
                self.at += marker.len();
                Ok(true)
            }
            super::Beginning::Unknown => Err(GemmaError::Incomplete),
            super::Beginning::Other => Ok(false),
        }
    }

    fn expect(&mut self, marker: &str) -> Result<(), GemmaError> {
        if self.skip(marker)? { Ok(()) } else { Err(GemmaError::Invalid) }
    }

    fn skip_space(&mut self) {
        self.at += super::leading_space(self.rest());
    }

    /// Consumes everything before one of `ends`.
    fn until(&mut self, ends: &[char]) -> Result<&'t str, GemmaError> {
        let length = self.rest().find(ends).ok_or(GemmaError::Incomplete)?;
        let part = &self.rest()[..length];
        self.at += length;
        Ok(part)
    }

    fn value(&mut self, depth: usize) -> Result<String, GemmaError> {
        if depth > MAX_DEPTH {
            return Err(GemmaError::Invalid);
        }
        self.skip_space();
        if self.skip(self.quote)? {
            let length = self.rest().find(self.quote).ok_or(GemmaError::Incomplete)?;
            let text = Value::from(&self.rest()[..length]).to_string();
            self.at += length + self.quote.len();
            return Ok(text);
        }
        if self.skip("{")? {
            return self.list("}", depth, true).map(|items| format!("{{{items}}}"));
        }
        if self.skip("[")? {
            return self.list("]", depth, false).map(|items| format!("[{items}]"));
        }
        let bare = self.until(&[',', '}', ']'])?.trim();
        let is_json = serde_json::from_str::<&serde_json::value::RawValue>(bare).is_ok();
        Ok(if is_json { bare.to_owned() } else { Value::from(bare).to_string() })
    }

    /// Reads the items of an object or a list, and its end.
    fn list(&mut self, end: &str, depth: usize, has_keys: bool) -> Result<String, GemmaError> {
        let mut items = Vec::new();
        loop {
            self.skip_space();
            if self.skip(end)? {
                return Ok(items.join(", "));
            }
            if !items.is_empty() {
                self.expect(",")?;
            }
            let mut item = String::new();
            if has_keys {
                self.skip_space();
                let is_quoted = self.skip(self.quote)?;
                let key = self.until(&[':'])?.trim();
                let key = key.strip_suffix(self.quote).filter(|_| is_quoted).unwrap_or(key);
                self.expect(":")?;
                item = format!("{}: ", Value::from(key));
            }
            item.push_str(&self.value(depth + 1)?);
            items.push(item);
        }
    }
}
