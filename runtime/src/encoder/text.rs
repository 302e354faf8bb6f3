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
    /// The most tokens of a text, special ones included: the model's own, or fewer where it was made for fewer.
    pub fn most_tokens(&self) -> usize {
        let own = self.model().hyper().text;
        let config = crate::arch::Config::new(self.model().file().metadata().config.clone());
        let made_for = config.count(&["sentence_transformers/most_tokens"]).ok().flatten();
        made_for.filter(|&most| most > 2).map_or(own, |most| most.min(own))
    }

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
        let Some(room) = most.checked_sub(around).filter(|&room| room > 0) else {
            let message = format!("{around} tokens stand around every text; the model reads {most}");
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        };
        let step = match long {
            Long::Window { overlap } if overlap >= room => {
                let message = format!("{overlap} tokens; a part has {room}");
                return Err(Error::argument("overlap", message));
            }
            Long::Window { overlap } => room - overlap,
            Long::Refuse | Long::Cut => inner.len().max(1),
        };
        let mut parts = Vec::new();
        for start in (0..inner.len()).step_by(step) {
            let end = inner.len().min(start + room);
            parts.push(part(&[prefix, &inner[start..end], suffix].concat()));
            if end == inner.len() || long == Long::Cut {
                break;
            }
        }
        Ok(parts)
    }

    /// Two texts as one input, such as a question and a passage; the second is what may be too long.
    pub(super) fn pair(&self, first: &str, second: &str) -> Result<Pair> {
        let (tokens, segments, places) =
            self.model().tokenizer()?.encode_pair_apart(first, second, SPECIAL)?;
        let most = self.most_tokens();
        if tokens.len() > most {
            let message = format!("{} tokens with what goes before it; the model reads {most}", tokens.len());
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let segments = if self.model().hyper().segments > 1 { segments } else { Vec::new() };
        let ids = tokens.iter().map(|token| token.id).collect();
        Ok(Pair { tokens: Tokens { ids, segments, ..Tokens::default() }, spans: part(&tokens).spans, places })
    }
}

fn part(tokens: &[Token]) -> Part {
    Part {
        tokens: Tokens::from(tokens.iter().map(|token| token.id).collect::<Vec<_>>()),
        spans: tokens.iter().map(|token| (token.start as usize, token.end as usize)).collect(),
    }
}
