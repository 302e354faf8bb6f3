//! From texts to what a model reads.

use std::ops::Range;

use super::{Encoder, Tokens};
use crate::tokenizer::{EncodeOptions, Token};
use crate::{Error, ErrorKind, Result};

/// What is done with a text that has more tokens than the model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Long {
    /// It is refused.
    #[default]
    Refuse,
    /// It is read up to there.
    Cut,
    /// It is read in parts, each of which repeats so many tokens of the one before.
    Window {
        /// Tokens that two parts share.
        overlap: usize,
    },
}

/// A part of a text as a model reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The ids, special ones included.
    pub tokens: Tokens,
    /// For each, the bytes of the text that it stands for; special ones stand for none.
    pub spans: Vec<(usize, usize)>,
}

/// Two texts as one input.
pub(super) struct Pair {
    /// The ids, special ones included.
    pub tokens: Tokens,
    /// For each, the bytes of its text that it stands for.
    pub spans: Vec<(usize, usize)>,
    /// The tokens of either text.
    pub places: [Range<usize>; 2],
}

const SPECIAL: EncodeOptions = EncodeOptions { add_special: true, parse_special: false };

impl Encoder {
    /// The parts of a text: one, unless it is too long and `long` allows for more.
    pub fn parts(&self, text: &str, long: Long) -> Result<Vec<Part>> {
        let tokenizer = self.model().tokenizer()?;
        let whole = tokenizer.encode_with_offsets(text, SPECIAL)?;
        let most = self.most_tokens();
        if whole.len() <= most {
            return Ok(vec![part(&whole)]);
        }
        if long == Long::Refuse {
            let message =
                format!("{} tokens; the model reads {most}: cut it, or read it in parts", whole.len());
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let inner = tokenizer.encode_with_offsets(text, EncodeOptions { add_special: false, ..SPECIAL })?;
        // What the model expects around a text stands around each part of it.
        let before = (0..=whole.len().saturating_sub(inner.len()))
            .find(|&start| whole[start..].iter().zip(&inner).all(|(a, b)| a.id == b.id))
            .unwrap_or(0);
        let (prefix, suffix) = (&whole[..before], whole.get(before + inner.len()..).unwrap_or_default());
        let around = prefix.len() + suffix.len();
        let parts = long.parts(inner.len(), most.saturating_sub(around), around)?;
        Ok(parts.into_iter().map(|range| part(&[prefix, &inner[range], suffix].concat())).collect())
    }

    /// The parts of all texts, and which text each is of. Errors call the texts by their numbers.
    pub(super) fn all_parts(&self, texts: &[(usize, &str)], long: Long) -> Result<Vec<(usize, Part)>> {
        let mut all = Vec::with_capacity(texts.len());
        for (place, (number, text)) in texts.iter().enumerate() {
            let parts = self.parts(text, long).map_err(|error| error.within(&format!("text {number}")))?;
            all.extend(parts.into_iter().map(|part| (place, part)));
        }
        Ok(all)
    }

    /// Two texts as one input, such as a question and a passage; the second is what may be too long. Parts of it all
    /// have the first.
    pub(super) fn pairs(&self, first: &str, second: &str, long: Long) -> Result<Vec<Pair>> {
        let (tokens, segments, [before, inner]) =
            self.model().tokenizer()?.encode_pair_apart(first, second, SPECIAL)?;
        let segments = if self.model().hyper().segments > 1 { segments } else { Vec::new() };
        let (most, around) = (self.most_tokens(), tokens.len() - inner.len());
        if tokens.len() > most && long == Long::Refuse {
            let message = format!(
                "{} tokens with what goes before it; the model reads {most}: cut it, or read it in parts",
                tokens.len()
            );
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let room = most.saturating_sub(around);
        let parts = match tokens.len() <= most {
            true => std::iter::once(0..inner.len()).collect(),
            false => long.parts(inner.len(), room, around)?,
        };
        let pair = |part: Range<usize>| {
            let part = inner.start + part.start..inner.start + part.end;
            let places = [before.clone(), inner.start..inner.start + part.len()];
            let tokens = [&tokens[..inner.start], &tokens[part.clone()], &tokens[inner.end..]].concat();
            let segments = match segments.is_empty() {
                true => Vec::new(),
                false => [&segments[..inner.start], &segments[part], &segments[inner.end..]].concat(),
            };
            let Part { tokens, spans } = self::part(&tokens);
            Pair { tokens: Tokens { segments, ..tokens }, spans, places }
        };
        Ok(parts.into_iter().map(pair).collect())
    }
}

impl Long {
    /// The parts of `count` tokens where each has room for `room` of them beside `around` others.
    fn parts(self, count: usize, room: usize, around: usize) -> Result<Vec<Range<usize>>> {
        if room == 0 {
            let message = format!("{around} tokens stand around every text; the model reads no more");
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let step = match self {
            Self::Window { overlap } if overlap >= room => {
                let message = format!("{overlap} tokens; a part has {room}");
                return Err(Error::argument("overlap", message));
            }
            Self::Window { overlap } => room - overlap,
            Self::Refuse | Self::Cut => count.max(1),
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

/// Texts with their numbers.
pub(super) fn numbered<T: AsRef<str>>(texts: &[T]) -> Vec<(usize, &str)> {
    texts.iter().map(AsRef::as_ref).enumerate().collect()
}

fn part(tokens: &[Token]) -> Part {
    Part {
        tokens: Tokens::from(tokens.iter().map(|token| token.id).collect::<Vec<_>>()),
        spans: tokens.iter().map(|token| (token.start as usize, token.end as usize)).collect(),
    }
}
