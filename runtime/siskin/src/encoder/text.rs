//! From texts to encoder input.

use std::ops::Range;

use super::{Encoder, EncoderInput};
use crate::{Error, ErrorKind, Result};
use siskin_tokenizer::{EncodeOptions, TokenSpan};

/// How a text with more tokens than the model accepts is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverflowMode {
    /// It is rejected.
    #[default]
    Error,
    /// It is truncated.
    Truncate,
    /// It is split into overlapping windows.
    Window {
        /// The number of tokens that two consecutive windows share.
        overlap: usize,
    },
}

/// A window of a text, as encoder input.
#[derive(Clone, Debug, PartialEq)]
pub struct TextWindow {
    /// The token ids, special tokens included.
    pub tokens: EncoderInput,
    /// For each token the byte range of the text that it displays as, in whole characters; empty for special tokens.
    pub spans: Vec<(usize, usize)>,
    /// The tokens whose outputs are taken from this window. Each token of the text belongs to exactly one window, the
    /// one with the most context on its shorter side. Special tokens belong to none.
    pub own_tokens: Range<usize>,
}

/// Two texts as one input.
pub(super) struct Pair {
    /// The token ids, special tokens included.
    pub tokens: EncoderInput,
    /// For each token of the second text, the byte range that it displays as, in whole characters.
    pub spans: Vec<(usize, usize)>,
    /// The token range of either text.
    pub places: [Range<usize>; 2],
}

const SPECIAL: EncodeOptions = EncodeOptions { add_special: true, parse_special: false };

impl Encoder {
    /// Returns the windows of a text: one, unless it is too long and `overflow` allows more.
    pub fn parts(&self, text: &str, overflow: OverflowMode) -> Result<Vec<TextWindow>> {
        let tokenizer = self.model().tokenizer()?;
        let (whole, inner) = tokenizer.encode_apart(text, SPECIAL)?;
        let part = |tokens: &[TokenSpan], own_tokens: Range<usize>| TextWindow {
            tokens: ids(tokens),
            spans: tokens.iter().map(|token| tokenizer.span(text, token)).collect(),
            own_tokens,
        };
        let max_tokens = self.max_tokens();
        if whole.len() <= max_tokens {
            return Ok(vec![part(&whole, inner)]);
        }
        if overflow == OverflowMode::Error {
            let message =
                format!("{} tokens, but the model accepts {max_tokens}: shorten or truncate it", whole.len());
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        // Each window gets the special tokens that surround the whole text.
        let (prefix, suffix) = (&whole[..inner.start], &whole[inner.end..]);
        let around = prefix.len() + suffix.len();
        let parts = overflow.parts(inner.len(), max_tokens.saturating_sub(around), around)?;
        let whole_part = |index: usize| {
            let Range { start, end } = own_range(&parts, index);
            let (range, shift) = (parts[index].clone(), parts[index].start);
            let tokens = [prefix, &whole[inner.clone()][range], suffix].concat();
            part(&tokens, prefix.len() + start - shift..prefix.len() + end - shift)
        };
        Ok((0..parts.len()).map(whole_part).collect())
    }

    /// Returns the windows of all texts, and the index of the text of each. Errors name texts by their index.
    pub(super) fn all_parts(
        &self,
        texts: &[(usize, &str)],
        overflow: OverflowMode,
    ) -> Result<Vec<(usize, TextWindow)>> {
        let mut all = Vec::with_capacity(texts.len());
        for (place, (number, text)) in texts.iter().enumerate() {
            let parts =
                self.parts(text, overflow).map_err(|error| error.within(&format!("text {number}")))?;
            all.extend(parts.into_iter().map(|part| (place, part)));
        }
        Ok(all)
    }

    /// Returns two texts as one input, such as a question and a passage. Only the second may be too long; each of its
    /// windows is paired with the whole first text.
    pub(super) fn pairs(&self, first: &str, second: &str, overflow: OverflowMode) -> Result<Vec<Pair>> {
        let tokenizer = self.model().tokenizer()?;
        let (tokens, token_types, [before, inner]) = tokenizer.encode_pair_apart(first, second, SPECIAL)?;
        let token_types = if self.model().config().token_types > 1 { token_types } else { Vec::new() };
        let (max_tokens, around) = (self.max_tokens(), tokens.len() - inner.len());
        if tokens.len() > max_tokens && overflow == OverflowMode::Error {
            let message = format!(
                "{} tokens with the first text, but the model accepts {max_tokens}: shorten or truncate it",
                tokens.len()
            );
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let room = max_tokens.saturating_sub(around);
        let parts = match tokens.len() <= max_tokens {
            true => std::iter::once(0..inner.len()).collect(),
            false => overflow.parts(inner.len(), room, around)?,
        };
        let pair = |part: Range<usize>| {
            let part = inner.start + part.start..inner.start + part.end;
            let places = [before.clone(), inner.start..inner.start + part.len()];
            let tokens = [&tokens[..inner.start], &tokens[part.clone()], &tokens[inner.end..]].concat();
            let token_type_ids = match token_types.is_empty() {
                true => Vec::new(),
                false => {
                    [&token_types[..inner.start], &token_types[part], &token_types[inner.end..]].concat()
                }
            };
            let spans = tokens[places[1].clone()].iter().map(|token| tokenizer.span(second, token)).collect();
            Pair { tokens: EncoderInput { token_type_ids, ..ids(&tokens) }, spans, places }
        };
        Ok(parts.into_iter().map(pair).collect())
    }
}

impl OverflowMode {
    /// Splits `count` tokens into windows of up to `room` tokens, each with `around` other tokens around it.
    fn parts(self, count: usize, room: usize, around: usize) -> Result<Vec<Range<usize>>> {
        if room == 0 {
            let message = format!("the {around} tokens around each text leave no room for it");
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let step = match self {
            Self::Window { overlap } if overlap >= room => {
                let message = format!("{overlap} tokens, but a window has only {room}");
                return Err(Error::argument("overlap", message));
            }
            Self::Window { overlap } => room - overlap,
            Self::Error | Self::Truncate => count.max(1),
        };
        let mut parts = Vec::new();
        for start in (0..count).step_by(step) {
            let end = count.min(start + room);
            parts.push(start..end);
            if end == count {
                break;
            }
        }
        Ok(parts)
    }
}

/// Returns texts with their indices.
pub(super) fn numbered<T: AsRef<str>>(texts: &[T]) -> Vec<(usize, &str)> {
    texts.iter().map(AsRef::as_ref).enumerate().collect()
}

/// Returns the tokens that belong to window `index`: an overlap is divided in the middle, so that each token has as
/// much context as possible on either side.
fn own_range(parts: &[Range<usize>], index: usize) -> Range<usize> {
    let middle = |left: usize| usize::midpoint(parts[left + 1].start, parts[left].end);
    let start = if index == 0 { parts[0].start } else { middle(index - 1) };
    let end = if index + 1 == parts.len() { parts[index].end } else { middle(index) };
    start..end
}

fn ids(tokens: &[TokenSpan]) -> EncoderInput {
    EncoderInput::from(tokens.iter().map(|token| token.id).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_the_own_of_the_part_that_sees_most_around_it() {
        for (count, room, overlap) in [(100, 22, 8), (100, 22, 21), (23, 22, 0), (45, 22, 9), (22, 22, 5)] {
            let parts = OverflowMode::Window { overlap }.parts(count, room, 2).unwrap();
            let owner: Vec<usize> =
                (0..parts.len()).flat_map(|part| own_range(&parts, part).map(move |_| part)).collect();
            let all: Vec<usize> = (0..parts.len()).flat_map(|part| own_range(&parts, part)).collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>(), "{room} less {overlap}");
            for (token, owner) in owner.into_iter().enumerate() {
                // At the ends of the text no context is cut off.
                let around = |part: &Range<usize>| {
                    let before = if part.start == 0 { count } else { token - part.start };
                    let behind = if part.end == count { count } else { part.end - 1 - token };
                    before.min(behind)
                };
                let max_tokens = parts.iter().filter(|part| part.contains(&token)).map(around).max();
                assert_eq!(Some(around(&parts[owner])), max_tokens, "token {token} of {room} less {overlap}");
            }
        }
    }
}
