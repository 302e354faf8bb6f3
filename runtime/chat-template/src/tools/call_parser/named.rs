//! Calls that are a name, a separator, and JSON arguments.

use super::json::JsonScanner;
use super::{CallEvents, CallParser, CallProgress, held_back, leading_space};
use crate::tools::tool_format::NamedCall;

/// The maximum number of bytes before the separator.
const MAX_HEADER_BYTES: usize = 1024;

pub(super) struct NamedCallParser {
    call: NamedCall,
    has_begun: bool,
    scanner: JsonScanner,
}

impl NamedCallParser {
    pub(super) fn new(call: NamedCall) -> Self {
        Self { call, has_begun: false, scanner: JsonScanner::default() }
    }

    fn begin(&mut self, header: &str, calls: &mut CallEvents) {
        let split = |text, marker: &str| match marker {
            "" => (text, None),
            marker => str::split_once(text, marker).map_or((text, None), |(name, rest)| (name, Some(rest))),
        };
        let (name, id) = split(header, self.call.id_marker);
        let (name, _) = split(name, self.call.number_marker);
        calls.begin(name.trim(), id.map(str::trim));
        self.has_begun = true;
    }
}

impl CallParser for NamedCallParser {
    fn advance(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> CallProgress {
        let mut at = 0;
        if !self.has_begun {
            let separator = self.call.separator;
            let Some(end) = text.find(separator) else {
                let is_header = !is_end && text.len() - held_back(text, separator) <= MAX_HEADER_BYTES;
                return if is_header { CallProgress::More(0) } else { CallProgress::Invalid };
            };
            if text[..end].trim().is_empty() {
                return CallProgress::Invalid;
            }
            self.begin(&text[..end], calls);
            at = end + separator.len();
        }
        if !self.scanner.has_begun {
            at += leading_space(&text[at..]);
        }
        let (length, is_complete) = self.scanner.scan(&text[at..]);
        calls.arguments(&text[at..at + length]);
        match is_complete {
            true => CallProgress::Done(at + length),
            false => CallProgress::More(at + length),
        }
    }
}
