//! The vocabularies next to `model.bin`: token lists as JSON or as text lines.

use crate::import::read::MAX_VALUES;
use siskin_format::file::parse_json;
use siskin_format::{Error, Result};

/// The role of a vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabularyRole {
    /// The only vocabulary: of a monolingual model, or of Whisper.
    Model,
    /// Shared by the encoder and the decoder.
    Shared,
    /// The encoder's vocabulary; the index counts from 0 if there are several.
    Source(usize),
    /// The decoder's vocabulary.
    Target,
}

/// Tokens in order of their ids.
///
/// CTranslate2 appends the unknown token if the list lacks it; this code does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenList {
    /// Its role.
    pub role: VocabularyRole,
    /// The tokens, as the model's tokenizer spells them.
    pub tokens: Vec<String>,
}

impl TokenList {
    /// Parses a list of JSON strings. Total on any bytes; `location` is for errors.
    pub fn from_json(role: VocabularyRole, bytes: &[u8], location: &str) -> Result<Self> {
        Ok(Self { role, tokens: parse_json(bytes, location, MAX_VALUES)? })
    }

    /// Parses lines, which end with `\n`. If every line ends with `\r`, it is not part of the token. Total on any
    /// bytes; `location` is for errors.
    pub fn from_text(role: VocabularyRole, bytes: &[u8], location: &str) -> Result<Self> {
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|error| Error::corrupt(location, format!("not UTF-8: {error}")))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let count = if text.is_empty() { 0 } else { 1 + text.bytes().filter(|&byte| byte == b'\n').count() };
        if count > MAX_VALUES {
            return Err(Error::corrupt(location, format!("holds more than {MAX_VALUES} tokens")));
        }
        let has_returns = text.split('\n').all(|line| line.ends_with('\r'));
        let mut tokens = Vec::with_capacity(count);
        for line in text.split('\n').take(count) {
            let token = if has_returns { line.strip_suffix('\r').unwrap_or(line) } else { line };
            tokens.push(token.to_owned());
        }
        Ok(Self { role, tokens })
    }
}
