//! Hugging Face's `tokenizer.json`, and `tokenizer_config.json` next to it.
//!
//! Every component is either converted exactly or rejected by name; nothing is skipped.

mod json;
mod model;
mod pipeline;
mod template;

use crate::import::read::MAX_VALUES;
use json::JsonValue;
use siskin_format::Result;
use siskin_format::file::parse_json;
use siskin_tokenizer::{TokenKind, Vocabulary, find_ends};

/// SentencePiece's replacement of a space.
const SPACE: &str = "\u{2581}";

/// Reads a tokenizer from the bytes of `tokenizer.json` and, if present, of `tokenizer_config.json`.
pub fn vocabulary(tokenizer: &[u8], config: Option<&[u8]>) -> Result<Vocabulary> {
    let parse = |bytes: &[u8], file: &str| parse_json::<serde_json::Value>(bytes, file, MAX_VALUES);
    let tokenizer = parse(tokenizer, "tokenizer.json")?;
    let root = JsonValue::new(&tokenizer, "tokenizer.json");
    let spelling = pipeline::spelling(&root)?;
    let mut vocabulary = model::read(&root, spelling)?;
    pipeline::read(&root, spelling, &mut vocabulary)?;
    template::read(&root, &mut vocabulary)?;
    if let Some(config) = config {
        let config = parse(config, "tokenizer_config.json")?;
        template::read_config(&JsonValue::new(&config, "tokenizer_config.json"), &mut vocabulary)?;
    }
    template::guess_roles(&mut vocabulary);
    find_ends(&mut vocabulary);
    Ok(vocabulary)
}

/// How a file spells tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As plain text.
    Plain,
    /// In GPT-2's byte-to-Unicode alphabet.
    Bytes,
    /// With U+2581 for spaces.
    Spaces,
}

impl Spelling {
    /// Returns the bytes that an ordinary token stands for, or `None` if no text can produce it.
    fn read(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Plain => Some(text.as_bytes().to_vec()),
            Self::Bytes => siskin_tokenizer::from_byte_level(text),
            Self::Spaces => Some(text.replace(SPACE, " ").into_bytes()),
        }
    }

    /// Converts text of a normalizer or pre-tokenizer to the spelling of the runtime.
    fn plain(self, text: &str) -> String {
        if self == Self::Spaces { text.replace(SPACE, " ") } else { text.to_owned() }
    }
}

/// Returns the id of the token spelled `text`, of any kind.
fn find(vocabulary: &Vocabulary, text: &str) -> Option<u32> {
    let special = |kind| {
        matches!(kind, TokenKind::Control | TokenKind::UserDefined | TokenKind::Added | TokenKind::Unknown)
    };
    let of = |wanted: bool| {
        let found = vocabulary.tokens.iter().position(|token| {
            special(token.kind) == wanted && token.text == text.as_bytes() && !token.text.is_empty()
        });
        found.map(|id| id as u32)
    };
    of(true).or_else(|| of(false))
}
