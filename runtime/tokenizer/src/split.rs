//! Pre-tokenizers: splitting text into the pieces that the model encodes one at a time.

use super::fallible_alloc;
use super::record::TokenizerRecord;
use super::regex::{Matcher, Pattern};
use super::unicode::{self, set};
use siskin_format::{Error, Result};
use std::ops::Range;

/// What happens to the matches of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// They are removed.
    Removed,
    /// Each is a piece of its own.
    Isolated,
    /// Each is joined to the piece before it.
    MergedWithPrevious,
    /// Each is joined to the piece after it.
    MergedWithNext,
    /// Adjacent ones form one piece.
    Contiguous,
}

impl Behavior {
    const ALL: [Self; 5] =
        [Self::Removed, Self::Isolated, Self::MergedWithPrevious, Self::MergedWithNext, Self::Contiguous];
}

/// A splitting step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PreTokenizerStep {
    /// Splits at the matches of a pattern.
    Pattern {
        /// The regular expression.
        pattern: String,
        /// What happens to the matches.
        behavior: Behavior,
        /// Treats the text between matches as the matches.
        invert: bool,
    },
    /// Splits every run of digits into groups of three, counted from its end.
    DigitGroups {
        /// Skips runs that are followed by a letter.
        at_word_ends: bool,
    },
}

impl PreTokenizerStep {
    /// Splits at every match, keeping matches and the text between them.
    pub fn isolated(pattern: &str) -> Self {
        Self::Pattern { pattern: pattern.to_owned(), behavior: Behavior::Isolated, invert: false }
    }

    pub(super) fn from_record(record: TokenizerRecord) -> Result<Self> {
        let TokenizerRecord { code, number, texts: [pattern, _] } = record;
        match (code, Behavior::ALL.get((number & 255) as usize)) {
            (1, Some(&behavior)) => Ok(Self::Pattern { pattern, behavior, invert: number >> 8 & 1 == 1 }),
            (1, None) => {
                Err(Error::unsupported("tokenizer.pre_tokenizer", format!("behavior {number} is unknown")))
            }
            (2, _) => Ok(Self::DigitGroups { at_word_ends: number & 1 == 1 }),
            _ => Err(Error::unsupported("tokenizer.pre_tokenizer", format!("step {code} is unknown"))),
        }
    }

    pub(super) fn record(&self) -> TokenizerRecord {
        match self {
            Self::Pattern { pattern, behavior, invert } => {
                TokenizerRecord::new(1, *behavior as u32 | u32::from(*invert) << 8, pattern, "")
            }
            Self::DigitGroups { at_word_ends } => TokenizerRecord::new(2, u32::from(*at_word_ends), "", ""),
        }
    }
}

/// The compiled steps of a tokenizer.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutting {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Pattern { pattern: Box<Pattern>, behavior: Behavior, invert: bool },
    DigitGroups { at_word_ends: bool },
}

/// A piece: its range in the text.
pub(super) type Piece = Range<u32>;

impl Cutting {
    pub(super) fn open(table: &[u8]) -> Result<Self> {
        Self::of(TokenizerRecord::read_all(table, "pre_tokenizer")?)
    }

    pub(super) fn of(records: impl IntoIterator<Item = TokenizerRecord>) -> Result<Self> {
        let mut steps = Vec::new();
        for record in records {
            steps.push(match PreTokenizerStep::from_record(record)? {
                PreTokenizerStep::Pattern { pattern, behavior, invert } => {
                    Step::Pattern { pattern: Box::new(Pattern::new(&pattern)?), behavior, invert }
                }
                PreTokenizerStep::DigitGroups { at_word_ends } => Step::DigitGroups { at_word_ends },
            });
        }
        Ok(Self { steps })
    }

    /// Fills `pieces` with the pieces of `text`.
    pub(super) fn run(
        &self,
        text: &str,
        matcher: &mut Matcher,
        pieces: &mut Vec<Piece>,
        spare: &mut Vec<Piece>,
    ) -> Result<()> {
        pieces.clear();
        if text.is_empty() {
            return Ok(());
        }
        pieces.push(0..text.len() as u32);
        for step in &self.steps {
            spare.clear();
            matcher.allow(text.len());
            for piece in pieces.iter() {
                let part = text.get(piece.start as usize..piece.end as usize).unwrap_or_default();
                let mut out = Output { base: piece.start, pieces: spare, is_full: false };
                match step {
                    Step::Pattern { pattern, behavior: Behavior::Isolated, invert: false } => {
                        isolate(pattern, part, matcher, &mut out)?;
                    }
                    Step::Pattern { pattern, behavior, invert } => {
                        cut(pattern, (*behavior, *invert), part, matcher, &mut out)?;
                    }
                    Step::DigitGroups { at_word_ends } => digit_groups(part, *at_word_ends, &mut out),
                }
                if out.is_full {
                    return Err(fallible_alloc::short());
                }
            }
            std::mem::swap(pieces, spare);
        }
        Ok(())
    }
}

struct Output<'a> {
    base: u32,
    pieces: &'a mut Vec<Piece>,
    /// Whether memory for a piece could not be allocated.
    is_full: bool,
}

impl Output<'_> {
    fn push(&mut self, start: usize, end: usize) {
        if start < end {
            let piece = self.base + start as u32..self.base + end as u32;
            self.is_full = self.is_full || fallible_alloc::push(self.pieces, piece).is_err();
        }
    }
}

fn isolate(pattern: &Pattern, text: &str, matcher: &mut Matcher, out: &mut Output<'_>) -> Result<()> {
    let mut done = 0;
    while let Some((start, end)) = matcher.find(pattern, text, done)? {
        out.push(done, start);
        out.push(start, end);
        done = end;
    }
    out.push(done, text.len());
    Ok(())
}

/// Splits with the other behaviors. `held` is the piece that may still grow.
fn cut(
    pattern: &Pattern,
    (behavior, invert): (Behavior, bool),
    text: &str,
    matcher: &mut Matcher,
    out: &mut Output<'_>,
) -> Result<()> {
    let mut held: Option<(usize, usize, bool)> = None;
    let mut done = 0;
    loop {
        let found = matcher.find(pattern, text, done)?;
        let (start, end) = found.unwrap_or((text.len(), text.len()));
        for (from, to, matched) in [(done, start, invert), (start, end, !invert)] {
            if from == to {
                continue;
            }
            let joins = held.is_some_and(|(_, _, before)| match behavior {
                Behavior::Removed | Behavior::Isolated => false,
                Behavior::MergedWithPrevious => matched && !before,
                Behavior::MergedWithNext => before && !matched,
                Behavior::Contiguous => before == matched,
            });
            held = match held {
                Some((first, _, _)) if joins => Some((first, to, matched)),
                other => {
                    flush(other, behavior, out);
                    Some((from, to, matched))
                }
            };
        }
        done = end;
        if found.is_none() {
            flush(held, behavior, out);
            return Ok(());
        }
    }
}

fn flush(held: Option<(usize, usize, bool)>, behavior: Behavior, out: &mut Output<'_>) {
    if let Some((start, end, matched)) = held
        && !(matched && behavior == Behavior::Removed)
    {
        out.push(start, end);
    }
}

fn digit_groups(text: &str, at_word_ends: bool, out: &mut Output<'_>) {
    const WORD: u32 = set::LETTER | set::MARK | set::LETTER_NUMBER | set::CONNECTOR;
    let is_digit = |character: char| unicode::is_in(character, set::DECIMAL);
    let mut at = 0;
    while at < text.len() {
        let start = text[at..].find(is_digit).map_or(text.len(), |length| at + length);
        out.push(at, start);
        let end =
            text[start..].find(|character| !is_digit(character)).map_or(text.len(), |length| start + length);
        let follows = text[end..].chars().next();
        if at_word_ends && follows.is_some_and(|character| unicode::is_in(character, WORD)) {
            out.push(start, end);
            at = end;
            continue;
        }
        let mut left = text[start..end].chars().count();
        let mut group = start;
        for (offset, character) in text[start..end].char_indices() {
            left -= 1;
            if left.is_multiple_of(3) {
                let next = start + offset + character.len_utf8();
                out.push(group, next);
                group = next;
            }
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pre_tokenizer_step: PreTokenizerStep, text: &str) -> Vec<String> {
        let mut table = Vec::new();
        pre_tokenizer_step.record().write(&mut table);
        let (mut pieces, mut spare) = (Vec::new(), Vec::new());
        Cutting::open(&table).unwrap().run(text, &mut Matcher::default(), &mut pieces, &mut spare).unwrap();
        pieces.iter().map(|piece| text[piece.start as usize..piece.end as usize].to_owned()).collect()
    }

    #[test]
    fn behaviors_follow_hugging_face() {
        // Expected results of tokenizers.pre_tokenizers.Split("-", behavior).pre_tokenize_str.
        let text = "the-final--countdown";
        for (behavior, wanted) in [
            (Behavior::Removed, vec!["the", "final", "countdown"]),
            (Behavior::Isolated, vec!["the", "-", "final", "-", "-", "countdown"]),
            (Behavior::MergedWithPrevious, vec!["the-", "final-", "-", "countdown"]),
            (Behavior::MergedWithNext, vec!["the", "-final", "-", "-countdown"]),
            (Behavior::Contiguous, vec!["the", "-", "final", "--", "countdown"]),
        ] {
            let pre_tokenizer_step =
                PreTokenizerStep::Pattern { pattern: "-".into(), behavior, invert: false };
            assert_eq!(pieces(pre_tokenizer_step, text), wanted, "{behavior:?}");
        }
    }

    #[test]
    fn digits_group_from_the_right() {
        assert_eq!(
            pieces(PreTokenizerStep::DigitGroups { at_word_ends: false }, "a1234567b12"),
            ["a", "1", "234", "567", "b", "12"]
        );
        assert_eq!(
            pieces(PreTokenizerStep::DigitGroups { at_word_ends: true }, "1234b 1234"),
            ["1234", "b ", "1", "234"]
        );
    }
}
