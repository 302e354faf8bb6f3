//! Display spans of tokens: the byte range of the text that a token is shown as.

use super::model::TokenSpan;
use super::section::{TokenizerSection, field};
use super::{Tokenizer, Trim};
use siskin_format::{Error, Result};

impl Trim {
    const ALL: [Self; 3] = [Self::Nothing, Self::Spaces, Self::WhiteSpace];

    pub(super) fn read(section: &TokenizerSection) -> Result<Self> {
        let number = section.field(field::TRIM);
        Self::ALL.get(number as usize).copied().ok_or_else(|| {
            Error::unsupported("tokenizer.header.trim", format!("{number} is unknown; update Siskin"))
        })
    }

    fn takes(self, character: char) -> bool {
        match self {
            Self::Nothing => false,
            Self::Spaces => character == ' ',
            Self::WhiteSpace => character.is_whitespace(),
        }
    }
}

impl Tokenizer {
    /// Returns the bytes of `text` that its token `token` is shown as: whole characters, without the leading and
    /// trailing spaces that the tokenizer trims. A token of spaces alone has an empty span at its end, or, if words
    /// were split at whitespace first, the first character of the word that it begins.
    pub fn span(&self, text: &str, token: &TokenSpan) -> (usize, usize) {
        let (start, end) = (token.start as usize, token.end as usize);
        let end = text.ceil_char_boundary(end);
        let start = if token.start < token.end { text.floor_char_boundary(start) } else { end };
        let Some(shown) = text.get(start..end).filter(|shown| !shown.is_empty()) else { return (end, end) };
        let kept = shown.trim_start_matches(|character| self.trim.takes(character));
        match (kept.is_empty(), self.trim) {
            (false, _) => {
                let start = end - kept.len();
                (start, start + kept.trim_end_matches(|character| self.trim.takes(character)).len())
            }
            (true, Trim::WhiteSpace) => (end, text.ceil_char_boundary((end + 1).min(text.len()))),
            (true, _) => (end, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelKind, TokenKind, Vocabulary, VocabularyToken};
    use siskin_format::file::Bytes;

    fn tokenizer(trim: Trim) -> Tokenizer {
        let vocabulary = Vocabulary {
            trim,
            ..Vocabulary::new(ModelKind::WordLevel, vec![VocabularyToken::new("a", TokenKind::Normal)])
        };
        Tokenizer::open(Bytes::new(vocabulary.write().unwrap())).unwrap()
    }

    #[test]
    fn spans_are_whole_characters_and_trimmed() {
        let text = "é \t東 b";
        for (trim, (start, end), want) in [
            (Trim::Nothing, (0, 1), (0, 2)),
            (Trim::Nothing, (1, 5), (0, 7)),
            (Trim::Nothing, (2, 2), (2, 2)),
            (Trim::Nothing, (5, 5), (7, 7)),
            (Trim::Nothing, (7, 9), (7, 9)),
            (Trim::Spaces, (7, 9), (8, 9)),
            (Trim::Spaces, (2, 5), (3, 7)),
            (Trim::Spaces, (2, 3), (3, 3)),
            (Trim::Spaces, (5, 8), (4, 7)),
            (Trim::WhiteSpace, (2, 5), (4, 7)),
            (Trim::WhiteSpace, (2, 4), (4, 7)),
            (Trim::WhiteSpace, (9, 9), (9, 9)),
            (Trim::Spaces, (8, 99), (8, 9)),
        ] {
            let token = TokenSpan { id: 0, start, end };
            assert_eq!(tokenizer(trim).span(text, &token), want, "{trim:?}, {start} to {end}");
        }
        assert_eq!(tokenizer(Trim::WhiteSpace).span("a ", &TokenSpan { id: 0, start: 1, end: 2 }), (2, 2));
    }

    #[test]
    fn unknown_ways_to_trim_are_rejected() {
        let mut section =
            Vocabulary::new(ModelKind::WordLevel, vec![VocabularyToken::new("a", TokenKind::Normal)])
                .write()
                .unwrap();
        assert_eq!(section[field::TRIM..][..4], [0; 4], "older files have zeros there");
        section[field::TRIM] = 9;
        assert!(Tokenizer::open(Bytes::new(section)).unwrap_err().location().contains("trim"));
    }
}
