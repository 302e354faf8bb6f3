//! The bytes of all tokens, in order.

use std::ops::Range;

use crate::Result;
use siskin_tokenizer::{EncodeOptions, Tokenizer};

/// The tokens that stand for text, sorted by their bytes.
pub(super) struct TokenTable {
    bytes: Vec<u8>,
    /// The range of each token in `bytes`, by id; empty for tokens that stand for no text.
    ranges: Vec<Range<u32>>,
    /// Tokens that stand for text.
    sorted: Vec<u32>,
}

impl TokenTable {
    /// Creates the table of the first `vocabulary_size` tokens.
    pub(super) fn new(tokenizer: &Tokenizer, vocabulary_size: usize) -> Result<Self> {
        let mut table =
            Self { bytes: Vec::new(), ranges: Vec::with_capacity(vocabulary_size), sorted: Vec::new() };
        for id in 0..vocabulary_size as u32 {
            let start = table.bytes.len() as u32;
            if !tokenizer.is_special(id) {
                tokenizer.piece_into(id, false, &mut table.bytes)?;
            }
            table.ranges.push(start..table.bytes.len() as u32);
        }
        let mut sorted: Vec<u32> =
            (0..vocabulary_size as u32).filter(|&id| !table.token(id).is_empty()).collect();
        sorted
            .sort_unstable_by(|&one, &other| table.token(one).cmp(table.token(other)).then(one.cmp(&other)));
        table.sorted = sorted;
        Ok(table)
    }

    /// Returns the bytes of a token; none for tokens that stand for no text.
    pub(super) fn token(&self, id: u32) -> &[u8] {
        let range = self.ranges.get(id as usize).cloned().unwrap_or(0..0);
        &self.bytes[range.start as usize..range.end as usize]
    }

    /// Calls `each` with the tokens that `text` begins with.
    pub(super) fn for_prefixes(&self, text: &[u8], mut each: impl FnMut(u32)) {
        let mut found = 0..self.sorted.len();
        for (depth, &byte) in text.iter().enumerate() {
            let list = &self.sorted[found.clone()];
            // Those that end here come first.
            let at = |id: u32| self.token(id).get(depth).map_or(-1, |byte| i32::from(*byte));
            let from = list.partition_point(|&id| at(id) < i32::from(byte));
            let to = list.partition_point(|&id| at(id) <= i32::from(byte));
            found = found.start + from..found.start + to;
            let ends = self.sorted[found.clone()].iter().take_while(|&&id| self.token(id).len() == depth + 1);
            ends.for_each(|&id| each(id));
            if found.is_empty() {
                return;
            }
        }
    }
}

/// Returns the tokens of `text` as it is encoded inside a longer text, or `None` if they would stand for other bytes.
pub(super) fn encode_inside(tokenizer: &Tokenizer, text: &str) -> Option<Vec<u32>> {
    // Some tokenizers change the beginning of a text, such as by a space, so that it must not be the beginning.
    const BEFORE: &str = "\n";
    let options = EncodeOptions { add_special: false, parse_special: false };
    let mut tokens = tokenizer.encode(&format!("{BEFORE}{text}"), options).ok()?;
    let mut bytes = Vec::new();
    let before = tokens.iter().position(|&id| {
        let is_read = tokenizer.piece_into(id, false, &mut bytes).is_ok();
        is_read && bytes.ends_with(BEFORE.as_bytes())
    })?;
    tokens.drain(..=before);
    bytes.clear();
    tokens.iter().try_for_each(|&id| tokenizer.piece_into(id, false, &mut bytes)).ok()?;
    (bytes == text.as_bytes()).then_some(tokens)
}
