//! Decoding: token ids to text.

use super::Tokenizer;
use super::section::{attribute, flag};
use super::token_kind::TokenKind;
use siskin_format::Result;
use std::borrow::Cow;

/// Options for decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Skips control and unknown tokens.
    pub skip_special: bool,
}

impl Tokenizer {
    /// Returns the bytes that the token decodes to; they may be part of a character. Control and unknown tokens
    /// decode to their text if `with_special`, else to nothing.
    pub fn piece(&self, id: u32, with_special: bool) -> Result<Cow<'_, [u8]>> {
        let text = self.token_text(id)?;
        Ok(match self.kind(id)? {
            TokenKind::Normal
            | TokenKind::UserDefined
            | TokenKind::Unused
            | TokenKind::Unreachable
            | TokenKind::Added => Cow::Borrowed(text),
            TokenKind::Control | TokenKind::Unknown if with_special => Cow::Borrowed(text),
            TokenKind::Control | TokenKind::Unknown => Cow::Borrowed(&[]),
            TokenKind::Byte => byte_of(text).map_or(Cow::Borrowed(text), |byte| Cow::Owned(vec![byte])),
        })
    }

    /// Appends [`Tokenizer::piece`] to `out`.
    pub fn piece_into(&self, id: u32, with_special: bool, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.piece(id, with_special)?);
        Ok(())
    }

    /// Decodes `ids` to bytes, which are valid UTF-8 if the tokens encode a whole text.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> Result<Vec<u8>> {
        let view = self.view();
        let mut out = Vec::new();
        let mut is_first = true;
        for &id in ids {
            let is_special = self.is_special(id);
            if is_special && options.skip_special {
                continue;
            }
            let piece = self.piece(id, true)?;
            let joined = view.has(flag::JOIN_WORDS) && view.attributes_of(id) & attribute::CONTINUES == 0;
            if joined && !is_first && !(view.has(flag::CLEAN_SPACES) && hugs_left(&piece)) {
                out.push(b' ');
            }
            let strips = is_first && !is_special && view.has(flag::STRIP_LEADING_SPACE);
            let piece = if strips { piece.strip_prefix(b" ").unwrap_or(&piece) } else { &piece };
            out.extend_from_slice(piece);
            is_first = false;
        }
        Ok(out)
    }
}

/// Returns the byte of a `<0xNN>` token.
fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    match digits.len() {
        2 => u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok(),
        _ => None,
    }
}

/// Returns whether WordPiece's `clean_up_tokenization_spaces` removes the space before `piece`.
fn hugs_left(piece: &[u8]) -> bool {
    [".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"]
        .iter()
        .any(|start| piece.starts_with(start.as_bytes()))
}
