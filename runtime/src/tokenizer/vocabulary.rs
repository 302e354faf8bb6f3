//! What a conversion knows about a tokenizer, and writing it as a section.

use super::model::ModelKind;
use super::normalize::Normalizer;
use super::split::Splitter;
use crate::Result;

/// What kind of token an entry is. The numbers are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenKind {
    /// Text.
    Normal = 0,
    /// Stands for text without a token.
    Unknown = 1,
    /// Steers the model; found in text only where the caller allows it.
    Control = 2,
    /// Text that is always kept whole.
    UserDefined = 3,
    /// Not used by the model.
    Unused = 4,
    /// `<0xNN>`: one byte.
    Byte = 5,
    /// Never made from text: a byte-level vocabulary spells it in letters of no byte.
    Unreachable = 6,
    /// Text that is always kept whole, and that the model knows nothing of.
    Added = 7,
}

impl TokenKind {
    /// The kind with this number; other numbers mean [`TokenKind::Normal`].
    pub(super) fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Unknown,
            2 => Self::Control,
            3 => Self::UserDefined,
            4 => Self::Unused,
            5 => Self::Byte,
            6 => Self::Unreachable,
            7 => Self::Added,
            _ => Self::Normal,
        }
    }

    /// Whether texts are searched for the token, whoever wrote them.
    pub(super) fn is_kept_whole(self) -> bool {
        matches!(self, Self::UserDefined | Self::Added)
    }

    /// Whether models build the token from text.
    pub(super) fn is_ordinary(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

/// One entry of a vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct VocabularyToken {
    /// The bytes it stands for: of byte-level tokens the bytes themselves, with a space for U+2581
    /// where the vocabulary spells spaces so, without WordPiece's `##`; of other than ordinary
    /// tokens their spelling.
    pub text: Vec<u8>,
    /// Its kind.
    pub kind: TokenKind,
    /// Its score: log-probability, or for [`Merges::FromScores`] the higher the earlier.
    pub score: f32,
    /// WordPiece: it continues a word.
    pub continues: bool,
    /// Where it is found in text, white space before it goes with it.
    pub strip_left: bool,
    /// Where it is found in text, white space after it goes with it.
    pub strip_right: bool,
    /// It is found in text only between characters that are not of words.
    pub single_word: bool,
    /// It is looked for after normalizing instead of before.
    pub normalized: bool,
}

impl VocabularyToken {
    /// A token without any special property.
    pub fn new(text: impl Into<Vec<u8>>, kind: TokenKind) -> Self {
        Self {
            text: text.into(),
            kind,
            score: 0.0,
            continues: false,
            strip_left: false,
            strip_right: false,
            single_word: false,
            normalized: false,
        }
    }
}

/// Where byte-pair encoding's merges come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Merges {
    /// A list of pairs, the first is merged first. The texts are as in [`VocabularyToken::text`].
    Listed(Vec<(Vec<u8>, Vec<u8>)>),
    /// Every way to put a token together from two, in order of the tokens' scores.
    FromScores,
}

/// A part of what a whole input becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateItem {
    /// A token.
    Token {
        /// Its id.
        id: u32,
        /// Its segment number.
        segment: u32,
    },
    /// The first text's tokens.
    First {
        /// Their segment number.
        segment: u32,
    },
    /// The second text's tokens.
    Second {
        /// Their segment number.
        segment: u32,
    },
}

/// What the bytes that tokens are shown as leave out at their ends. The numbers are those of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Trim {
    /// Nothing: a token that begins with a space is shown with it.
    #[default]
    Nothing = 0,
    /// Spaces, as `trim_offsets` of byte-level tokenizers asks for.
    Spaces = 1,
    /// White space, which was not there any more when words became tokens.
    WhiteSpace = 2,
}

/// Ids of tokens with a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct SpecialIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unknown: Option<u32>,
    pub pad: Option<u32>,
    pub separator: Option<u32>,
    pub class: Option<u32>,
    pub mask: Option<u32>,
}

/// Everything a section holds, as plain values. [`Vocabulary::write`] makes the section.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// How pieces become tokens.
    pub model: ModelKind,
    /// The tokens, in order of their ids.
    pub tokens: Vec<VocabularyToken>,
    /// The merges of byte-pair encoding.
    pub merges: Merges,
    /// Tokens are byte strings, and a model starts from single bytes.
    pub byte_level: bool,
    /// The source spells spaces as U+2581.
    pub spells_spaces: bool,
    /// Characters without a token become byte tokens.
    pub byte_fallback: bool,
    /// Neighbouring unknown tokens become one.
    pub fuse_unknown: bool,
    /// A piece that is a token is that token, whatever the merges say.
    pub whole_first: bool,
    /// The score of an unknown character; 10 below the lowest score where it is not given.
    pub unknown_score: Option<f32>,
    /// WordPiece: longer words, in characters, are unknown.
    pub longest_word: u32,
    /// What [`super::Tokenizer::span`] leaves out.
    pub trim: Trim,
    /// Steps before splitting.
    pub normalizers: Vec<Normalizer>,
    /// SentencePiece's compiled character map.
    pub charsmap: Vec<u8>,
    /// Steps of splitting.
    pub splitters: Vec<Splitter>,
    /// Tokens with a role.
    pub special: SpecialIds,
    /// Whether the model expects its beginning-of-sequence token.
    pub add_bos: bool,
    /// Whether the model expects its end-of-sequence token.
    pub add_eos: bool,
    /// What one text becomes with its special tokens.
    pub single: Vec<TemplateItem>,
    /// What two texts become with their special tokens.
    pub pair: Vec<TemplateItem>,
    /// Ids that end generation.
    pub ends: Vec<u32>,
    /// Decoding drops one space at the start.
    pub strip_leading_space: bool,
    /// Decoding joins words with spaces.
    pub join_words: bool,
    /// Decoding removes spaces before punctuation and contractions.
    pub clean_spaces: bool,
}

impl Vocabulary {
    /// A vocabulary of `tokens` with nothing else set.
    pub fn new(model: ModelKind, tokens: Vec<VocabularyToken>) -> Self {
        Self {
            model,
            tokens,
            merges: Merges::Listed(Vec::new()),
            byte_level: false,
            spells_spaces: false,
            byte_fallback: false,
            fuse_unknown: false,
            whole_first: false,
            unknown_score: None,
            longest_word: 100,
            trim: Trim::Nothing,
            normalizers: Vec::new(),
            charsmap: Vec::new(),
            splitters: Vec::new(),
            special: SpecialIds::default(),
            add_bos: false,
            add_eos: false,
            single: vec![TemplateItem::First { segment: 0 }],
            pair: vec![TemplateItem::First { segment: 0 }, TemplateItem::Second { segment: 1 }],
            ends: Vec::new(),
            strip_leading_space: false,
            join_words: false,
            clean_spaces: false,
        }
    }

    /// The section's bytes; [`super::Tokenizer::open`] reads them.
    pub fn write(&self) -> Result<Vec<u8>> {
        super::write::write(self)
    }
}
