//! The vocabularies beside `model.bin`: lists of tokens, as JSON or one a line.

use crate::import::read::MOST_VALUES;
use siskin::file::parse_json;
use siskin::{Error, Result};

/// What the tokens of a vocabulary are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one vocabulary of a model of one language, or of Whisper.
    Model,
    /// Both sides of a model from text to text.
    Shared,
    /// What goes in; with several tables, their number from 0.
    Source(usize),
    /// What comes out.
    Target,
}

/// Tokens in order of their ids.
///
/// CTranslate2 puts the unknown token at the end where it is not among them, and so does nobody here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// What they are for.
    pub role: Role,
    /// The tokens, as the model's tokenizer spells them.
    pub tokens: Vec<String>,
}

impl Vocabulary {
    /// Reads a list of JSON strings. Total on any bytes; `place` is for errors.
    pub fn from_json(role: Role, bytes: &[u8], place: &str) -> Result<Self> {
        Ok(Self { role, tokens: parse_json(bytes, place, MOST_VALUES)? })
    }

    /// Reads lines. Only `\n` ends one; where each has a `\r` before it, that is not part of the token. Total on any
    /// bytes; `place` is for errors.
    pub fn from_text(role: Role, bytes: &[u8], place: &str) -> Result<Self> {
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|error| Error::corrupt(place, format!("is not UTF-8: {error}")))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let count = if text.is_empty() { 0 } else { 1 + text.bytes().filter(|&byte| byte == b'\n').count() };
        if count > MOST_VALUES {
            return Err(Error::corrupt(place, format!("holds more than {MOST_VALUES} tokens")));
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
