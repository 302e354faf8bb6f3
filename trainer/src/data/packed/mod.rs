//! Packed tokens: a tokenized data set as a file.
//!
//! All integers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `SISKINTK` |
//! | 8..12 | the version, 1 |
//! | 12..16 | bytes per token, 2 or 4 |
//! | 16..20 | the vocabulary size; ids lie below |
//! | 20..24 | token lists per record, from 1 to 8 |
//! | 24..32 | the [identity] of the tokenizer, or 0 |
//! | 32..40 | the number of records |
//! | 40..48 | the number of tokens |
//! | 48..52 | 1 if every record has a class, else 0 |
//! | 52..60 | a hash of all tokens and classes ([`Records::fingerprint`](super::Records::fingerprint)), or 0 |
//! | 60..64 | zeros |
//! | 64.. | the tokens, then zeros up to a multiple of eight |
//! | then | for each list of each record the index of its first token, and the number of all tokens: 8 bytes each |
//! | then | the class of each record, 4 bytes each, if records have classes |
//!
//! The file ends there. The tables are read when a file is opened: eight bytes for each list, and never more than the
//! file itself. Tokens stay in the file until they are read, and each is checked against the vocabulary size then.

mod read;
mod write;

pub use read::PackedTokenFile;
pub use write::PackedWriter;

use siskin_format::{Error, ErrorKind, Result};
use siskin_tokenizer::Tokenizer;

use super::records::MAX_PARTS;

const MAGIC: [u8; 8] = *b"SISKINTK";
const VERSION: u32 = 1;
const HEADER: usize = 64;

/// Returns a hash of a tokenizer: two that tokenize all text alike have the same.
pub fn identity(tokenizer: &Tokenizer) -> Result<u64> {
    // Zero means unknown.
    Ok(super::hash::bytes(0, &tokenizer.vocabulary()?.write()?).max(1))
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    width: u32,
    vocabulary: u32,
    parts: u32,
    identity: u64,
    records: u64,
    tokens: u64,
    labels: bool,
    fingerprint: u64,
}

/// The offsets of the sections of a file, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    starts: u64,
    labels: u64,
    end: u64,
}

impl Header {
    fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC);
        [VERSION, self.width, self.vocabulary, self.parts].iter().for_each(|word| put(&word.to_le_bytes()));
        [self.identity, self.records, self.tokens].iter().for_each(|word| put(&word.to_le_bytes()));
        put(&u32::from(self.labels).to_le_bytes());
        put(&self.fingerprint.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER]) -> Result<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at + 4)) << 32 | u64::from(word(at));
        let wrong = |field: &str, message: String| Err(Error::corrupt(format!("header.{field}"), message));
        if bytes[..8] != MAGIC {
            return wrong("magic", "not a file of packed tokens; run `siskin train pack` first".to_owned());
        }
        if word(8) != VERSION {
            let message = format!("{}, this program reads {VERSION}; pack the texts again", word(8));
            return Err(Error::new(ErrorKind::Version, "header.version", message));
        }
        let (width, vocabulary, parts) = (word(12), word(16), word(20));
        if width != 2 && width != 4 {
            return wrong("width", format!("{width}, a token has 2 or 4 bytes"));
        }
        if !(1..=MAX_PARTS as u32).contains(&parts) {
            return wrong("parts", format!("{parts}, a record has from 1 to {MAX_PARTS} lists"));
        }
        if word(48) > 1 {
            return wrong("labels", format!("expected 0 or 1, got {}", word(48)));
        }
        if bytes[60..].iter().any(|&byte| byte != 0) {
            return wrong("reserved", "reserved bytes must be zero".to_owned());
        }
        let (identity, records, tokens) = (long(24), long(32), long(40));
        let (labels, fingerprint) = (word(48) == 1, long(52));
        Ok(Self { width, vocabulary, parts, identity, records, tokens, labels, fingerprint })
    }

    /// Returns the layout; `None` if it overflows the maximum file size.
    fn layout(&self) -> Option<Layout> {
        let tokens = self.tokens.checked_mul(u64::from(self.width))?;
        let starts = tokens.checked_add(HEADER as u64)?.checked_next_multiple_of(8)?;
        let lists = self.records.checked_mul(u64::from(self.parts))?.checked_add(1)?;
        let labels = starts.checked_add(lists.checked_mul(8)?)?;
        let classes = if self.labels { self.records.checked_mul(4)? } else { 0 };
        Some(Layout { starts, labels, end: labels.checked_add(classes)? })
    }
}

/// Returns the bytes per token for a vocabulary of this size.
fn width_of(vocabulary: u32) -> u32 {
    if vocabulary <= 1 << 16 { 2 } else { 4 }
}
