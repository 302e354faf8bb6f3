//! Tokenizer models: a piece of text to tokens. One file each.

mod bpe;
mod unigram;
mod word_level;
mod wordpiece;

pub(super) use wordpiece::CONTINUES as WORDPIECE_CONTINUES;

use super::fallible_alloc;
use super::section::{SectionView, attribute, flag};
use super::trie::Trie;
use siskin_format::{Error, Result};

/// The kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// Byte-pair encoding: the best pair of neighbors is merged until none is left. Includes SentencePiece's BPE, whose
    /// scores are converted to ranks.
    Bpe,
    /// The most likely sequence of tokens.
    Unigram,
    /// Greedy longest match inside words.
    WordPiece,
    /// Whole words only.
    WordLevel,
}

impl ModelKind {
    const ALL: [Self; 4] = [Self::Bpe, Self::Unigram, Self::WordPiece, Self::WordLevel];

    pub(super) fn from_number(number: u32) -> Result<Self> {
        Self::ALL
            .get(number as usize)
            .copied()
            .ok_or_else(|| Error::unsupported("tokenizer.header.model", format!("model {number} is unknown")))
    }
}

/// A token and its byte range in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSpan {
    /// The token's id.
    pub id: u32,
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

/// The tables of all models.
#[derive(Clone, Copy)]
pub(super) struct ModelTables<'a> {
    pub(super) view: SectionView<'a>,
    pub(super) trie: Trie<'a>,
    pub(super) unknown_score: f32,
    pub(super) longest_word: usize,
}

/// Reusable buffers of the models.
#[derive(Debug, Default)]
pub(super) struct ModelBuffers {
    pub(super) bpe: bpe::BpeBuffers,
    pub(super) unigram: unigram::UnigramBuffers,
}

/// Appends the tokens of `text[start..end]` to `out`.
#[inline]
pub(super) fn encode(
    kind: ModelKind,
    tables: &ModelTables<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    work: &mut ModelBuffers,
    out: &mut Vec<TokenSpan>,
) -> Result<()> {
    let view = &tables.view;
    // Every token covers at least a byte.
    fallible_alloc::reserve(out, end.saturating_sub(start))?;
    match kind {
        ModelKind::WordPiece => {
            wordpiece::encode(tables, text, (start, end), out);
            return Ok(());
        }
        ModelKind::WordLevel => {
            word_level::encode(view, text, (start, end), out);
            return Ok(());
        }
        ModelKind::Bpe | ModelKind::Unigram => {}
    }
    if view.has(flag::WHOLE_FIRST)
        && let Some(id) = view.find_ordinary(text.get(start..end).unwrap_or_default())
        && id < view.tokens
    {
        out.push(TokenSpan { id, start: start as u32, end: end as u32 });
        return Ok(());
    }
    let floor = out.len();
    let mut part = |from: usize, to: usize| {
        let Some(bytes) = text.get(from..to) else { return Ok(()) };
        if let Some(id) = whole(view, bytes) {
            out.push(TokenSpan { id, start: from as u32, end: to as u32 });
            return Ok(());
        }
        match kind {
            ModelKind::Bpe => bpe::encode(view, text, (from, to), &mut work.bpe, floor, out),
            _ => unigram::encode(tables, text, (from, to), &mut work.unigram, floor, out),
        }
    };
    if view.joins.is_empty() {
        return part(start, end);
    }
    // The piece can be cut between two bytes that are not adjacent in any token.
    let bytes = text;
    let mut from = start;
    for at in start + 1..end {
        let (left, right) = (bytes[at - 1], bytes[at]);
        if is_start(right) && !view.joins(left, right) {
            part(from, at)?;
            from = at;
        }
    }
    part(from, end)
}

/// Returns the token of all of `bytes`, if it is marked as encoding its own text.
#[inline]
fn whole(view: &SectionView<'_>, bytes: &[u8]) -> Option<u32> {
    let id = view.find(bytes).filter(|&id| id < view.tokens)?;
    (view.attributes_of(id) & attribute::WHOLE != 0).then_some(id)
}

/// Returns whether a character can start with `byte`.
#[inline]
fn is_start(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

/// Returns the byte ranges of the characters of `text`.
fn characters(text: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at + 1..)?;
        let start = at;
        at += 1 + rest.iter().position(|&byte| is_start(byte)).unwrap_or(rest.len());
        Some((start, at))
    })
}

/// Appends the byte tokens of `text`, which starts at `at`; returns `false` if one does not exist.
fn push_bytes(view: &SectionView<'_>, text: &[u8], at: usize, out: &mut Vec<TokenSpan>) -> bool {
    let before = out.len();
    for (index, &byte) in text.iter().enumerate() {
        let id = byte_token(view, byte);
        if id >= view.tokens {
            out.truncate(before);
            return false;
        }
        let start = (at + index) as u32;
        out.push(TokenSpan { id, start, end: start + 1 });
    }
    true
}

/// Returns the `<0xNN>` token of a byte.
fn byte_token(view: &SectionView<'_>, byte: u8) -> u32 {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let text = [b'<', b'0', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)], b'>'];
    view.find(&text).unwrap_or(super::section::NONE)
}

/// Appends an unknown token, or extends the previous one if unknown tokens are fused.
fn push_unknown(
    view: &SectionView<'_>,
    (start, end): (usize, usize),
    fuse: bool,
    out: &mut Vec<TokenSpan>,
    floor: usize,
) {
    if view.unknown >= view.tokens {
        return;
    }
    if fuse
        && out.len() > floor
        && let Some(last) = out.last_mut()
        && last.id == view.unknown
        && last.end as usize == start
    {
        last.end = end as u32;
        return;
    }
    out.push(TokenSpan { id: view.unknown, start: start as u32, end: end as u32 });
}
