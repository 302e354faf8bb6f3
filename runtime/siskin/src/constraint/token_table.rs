//! Tokens by their bytes.

use std::borrow::Cow;
use std::sync::Arc;

use crate::Result;
use siskin_tokenizer::{EncodeOptions, Tokenizer};

/// The tokens that stand for text.
pub(super) struct TokenTable {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) vocabulary_size: usize,
    /// The length of the longest token in bytes.
    longest: usize,
    /// Tokens that are not found by their bytes, since another one has the same.
    hidden: Vec<u32>,
}

impl TokenTable {
    /// Creates the table of the first `vocabulary_size` tokens.
    pub(super) fn new(tokenizer: &Arc<Tokenizer>, vocabulary_size: usize) -> Result<Self> {
        let tokenizer = Arc::clone(tokenizer);
        let mut table = Self { tokenizer, vocabulary_size, longest: 0, hidden: Vec::new() };
        for id in 0..vocabulary_size as u32 {
            let bytes = table.token(id);
            let length = bytes.len();
            if length > 0 && table.find(&bytes) != Some(id) {
                table.hidden.push(id);
            }
            table.longest = table.longest.max(length);
        }
        Ok(table)
    }

    /// Returns the bytes of a token; none for tokens that stand for no text.
    pub(super) fn token(&self, id: u32) -> Cow<'_, [u8]> {
        let is_text = (id as usize) < self.vocabulary_size && !self.tokenizer.is_special(id);
        let bytes = is_text.then(|| self.tokenizer.piece(id, false).ok()).flatten();
        bytes.unwrap_or_default()
    }

    /// Returns the bytes of a token, those of a special token included.
    pub(super) fn visible(&self, id: u32) -> Cow<'_, [u8]> {
        let is_known = (id as usize) < self.vocabulary_size;
        is_known.then(|| self.tokenizer.piece(id, true).ok()).flatten().unwrap_or_default()
    }

    /// Returns the special token with this text.
    pub(super) fn special(&self, text: &str) -> Option<u32> {
        let is_known = |id: &u32| (*id as usize) < self.vocabulary_size && self.tokenizer.is_special(*id);
        self.tokenizer.token_to_id(text.as_bytes()).filter(is_known)
    }

    /// Returns the special tokens in a text.
    pub(super) fn special_in(&self, text: &str) -> Vec<u32> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        let mut tokens = self.tokenizer.encode(text, options).unwrap_or_default();
        tokens.retain(|&id| (id as usize) < self.vocabulary_size && self.tokenizer.is_special(id));
        tokens
    }

    /// Splits bytes into the longest tokens, from the left; ends with `None` if no token begins the rest.
    pub(super) fn greedy_tokens<'t>(&'t self, mut text: &'t [u8]) -> impl Iterator<Item = Option<u32>> + 't {
        std::iter::from_fn(move || {
            let longest = text.len().min(self.longest);
            if text.is_empty() {
                return None;
            }
            let found = (1..=longest).rev().find_map(|end| Some((self.find(&text[..end])?, end)));
            text = found.map_or(&[], |(_, end)| &text[end..]);
            Some(found.map(|(id, _)| id))
        })
    }

    /// Returns the token with these bytes, unless it is hidden.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<u32> {
        self.tokenizer.token_to_id(bytes).filter(|&id| self.token(id) == bytes)
    }

    /// Calls `each` with the tokens that `text` begins with.
    pub(super) fn for_prefixes(&self, text: &[u8], mut each: impl FnMut(u32)) {
        for end in 1..=text.len().min(self.longest) {
            if let Some(id) = self.find(&text[..end]) {
                each(id);
            }
        }
        self.hidden.iter().filter(|&&id| text.starts_with(&self.token(id))).for_each(|&id| each(id));
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
