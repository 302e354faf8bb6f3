//! The description of a tokenizer, as a converter creates it and writes it as a section.

use super::model::ModelKind;
use super::normalize::Normalizer;
use super::split::PreTokenizerStep;
use super::token_kind::TokenKind;

/// An entry of a vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct VocabularyToken {
    /// The bytes that it decodes to: the decoded bytes of byte-level tokens, with a space for U+2581 if the vocabulary
    /// spells spaces so, and without WordPiece's `##`; for tokens that are not ordinary, their text.
    pub text: Vec<u8>,
    /// Its kind.
    pub kind: TokenKind,
    /// Its score: a log-probability, or for [`Merges::FromScores`] a priority, higher for earlier merges.
    pub score: f32,
    /// WordPiece: whether it continues a word.
    pub continues: bool,
    /// Whether a match includes the whitespace before it.
    pub strip_left: bool,
    /// Whether a match includes the whitespace after it.
    pub strip_right: bool,
    /// Whether it is matched only between characters that are not word characters.
    pub single_word: bool,
    /// Whether it is matched after normalization instead of before.
    pub normalized: bool,
}

impl VocabularyToken {
    /// Creates a token with all properties off.
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

/// Where the merges of byte-pair encoding come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Merges {
    /// A list of pairs, in order of priority. The texts are as in [`VocabularyToken::text`].
    Listed(Vec<(Vec<u8>, Vec<u8>)>),
    /// All ways to join two tokens to a third, in the order of the tokens' scores (SentencePiece).
    FromScores,
}

/// An item of a post-processor template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateItem {
    /// A token.
    Token {
        /// Its id.
        id: u32,
        /// Its token type id.
        token_type: u32,
    },
    /// The first text's tokens.
    First {
        /// Their token type id.
        token_type: u32,
    },
    /// The second text's tokens.
    Second {
        /// Their token type id.
        token_type: u32,
    },
}

/// Which characters are trimmed from the spans that tokens are shown as. The numbers are those of the file format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Trim {
    /// None: a token that begins with a space is shown with it.
    #[default]
    Nothing = 0,
    /// Spaces, as with `trim_offsets` of byte-level tokenizers.
    Spaces = 1,
    /// Whitespace, which was removed before words were encoded.
    WhiteSpace = 2,
}

/// The ids of tokens with a role.
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

/// All contents of a section, as plain values. [`Vocabulary::write`] serializes it.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// The kind of the tokenizer model.
    pub model: ModelKind,
    /// The tokens, ordered by id.
    pub tokens: Vec<VocabularyToken>,
    /// The merges of byte-pair encoding.
    pub merges: Merges,
    /// Tokens are byte strings, and a model starts from single bytes.
    pub byte_level: bool,
    /// The source spells spaces as U+2581.
    pub spells_spaces: bool,
    /// Characters without a token become byte tokens.
    pub byte_fallback: bool,
    /// Adjacent unknown tokens become one.
    pub fuse_unknown: bool,
    /// A piece that is a token becomes that token, regardless of merges (`ignore_merges`).
    pub whole_first: bool,
    /// The score of an unknown character; `None`: 10 below the lowest score.
    pub unknown_score: Option<f32>,
    /// WordPiece: the maximum length of a word in characters; longer ones are unknown.
    pub longest_word: u32,
    /// What [`super::Tokenizer::span`] trims.
    pub trim: Trim,
    /// The normalizers.
    pub normalizers: Vec<Normalizer>,
    /// SentencePiece's compiled character map.
    pub charsmap: Vec<u8>,
    /// The pre-tokenizers.
    pub pre_tokenizers: Vec<PreTokenizerStep>,
    /// Tokens with a role.
    pub special: SpecialIds,
    /// Whether the model expects a BOS token.
    pub add_bos: bool,
    /// Whether the model expects an EOS token.
    pub add_eos: bool,
    /// The post-processor template of one text.
    pub single: Vec<TemplateItem>,
    /// The post-processor template of two texts.
    pub pair: Vec<TemplateItem>,
    /// Ids that end generation.
    pub ends: Vec<u32>,
    /// Decoding removes one space at the start.
    pub strip_leading_space: bool,
    /// Decoding joins words with spaces.
    pub join_words: bool,
    /// Decoding removes spaces before punctuation and contractions.
    pub clean_spaces: bool,
}

impl Vocabulary {
    /// Creates a vocabulary of `tokens` with defaults otherwise.
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
            pre_tokenizers: Vec::new(),
            special: SpecialIds::default(),
            add_bos: false,
            add_eos: false,
            single: vec![TemplateItem::First { token_type: 0 }],
            pair: vec![TemplateItem::First { token_type: 0 }, TemplateItem::Second { token_type: 1 }],
            ends: Vec::new(),
            strip_leading_space: false,
            join_words: false,
            clean_spaces: false,
        }
    }
}
