//! Calls that are a name, a separator, and JSON arguments.

use super::json::JsonScanner;
use super::{CallEvents, CallParser, CallProgress, MAX_NAME_BYTES, is_name, leading_space};
use crate::tools::tool_format::NamedCall;

pub(super) struct NamedCallParser {
    call: NamedCall,
    has_begun: bool,
    scanner: JsonScanner,
}

impl NamedCallParser {
    pub(super) fn new(call: NamedCall) -> Self {
        Self { call, has_begun: false, scanner: JsonScanner::default() }
    }

    /// Begins the call of a header; fails if it is none.
    fn begin(&mut self, header: &str, calls: &mut CallEvents) -> Result<(), ()> {
        let (name, id) = match self.call.id_marker {
            "" => (header, None),
            marker => header.split_once(marker).map_or((header, None), |(name, id)| (name, Some(id))),
        };
        let name = match self.call.number_marker {
            "" => name,
            marker => name.rsplit_once(marker).map_or(name, |(name, _)| name),
        };
        if !is_name(name.trim()) {
            return Err(());
        }
        calls.begin(name.trim(), id.map(str::trim));
        self.has_begun = true;
        Ok(())
    }
}

impl CallParser for NamedCallParser {
    fn advance(&mut self, text: &str, is_end: bool, calls: &mut CallEvents) -> CallProgress {
        let mut at = 0;
        if !self.has_begun {
            let separator = self.call.separator;
            let Some(end) = text.find(separator) else {
                let waits = !is_end && text.len() <= 2 * MAX_NAME_BYTES;
                return if waits { CallProgress::More(0) } else { CallProgress::Invalid(0) };
            };
            if self.begin(&text[..end], calls).is_err() {
                return CallProgress::Invalid(0);
            }
            at = end + separator.len();
        }
        if !self.scanner.has_begun {
            at += leading_space(&text[at..]);
        }
        let (length, is_complete) = self.scanner.scan(&text[at..]);
        calls.arguments(&text[at..at + length]);
        if !is_complete {
            return CallProgress::More(at + length);
        }
        calls.end();
        CallProgress::Done(at + length)
    }
}
