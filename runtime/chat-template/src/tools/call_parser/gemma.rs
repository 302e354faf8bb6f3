//! Gemma's calls: `call:NAME{KEY:VALUE,…}`, where strings are between special tokens.

use serde_json::Value;

use super::{CallEvents, CallParser, CallProgress};

/// The maximum nesting depth of values.
const MAX_DEPTH: usize = 64;

pub(super) struct GemmaCallParser {
    quote: &'static str,
}

impl GemmaCallParser {
    pub(super) fn new(quote: &'static str) -> Self {
        Self { quote }
    }
}

impl CallParser for GemmaCallParser {
    fn advance(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> CallProgress {
        let mut reader = GemmaReader { text, at: 0, quote: self.quote };
        match reader.call() {
            Ok((name, arguments)) => {
                calls.begin(&name, None);
                calls.arguments(&arguments);
                CallProgress::Done(reader.at)
            }
            Err(GemmaError::Incomplete) if !is_end => CallProgress::More(0),
            Err(_) => CallProgress::Invalid,
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

    fn call(&mut self) -> Result<(String, String), GemmaError> {
        self.skip_space();
        self.expect("call:")?;
        let name = self.until(&['{'])?.trim().to_owned();
        if name.is_empty() {
            return Err(GemmaError::Invalid);
        }
        Ok((name, self.value(0)?))
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
