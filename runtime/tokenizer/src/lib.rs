//! Tokenizers: text to token ids and back, read from a mapped section.
//!
//! A [`Vocabulary`] describes a tokenizer and writes it as a section. A [`Tokenizer`] opens a section in place: its
//! tables (token texts, hash tables of tokens and merges, tries) are used where they are mapped, so that opening takes
//! the same time for any vocabulary size. Text goes through five steps, one file each: added tokens are matched
//! (`encode`), the text between them is normalized (`normalize`) and split into pieces by the pre-tokenizer (`split`),
//! the model turns each piece into tokens (`model`), and the post-processor adds the special tokens that the model
//! expects.
//!
//! - [`Tokenizer`] encodes and decodes; it is immutable, and any number of threads may share it.
//! - [`EncodeOptions`] say which special tokens are recognized in a text and which are added. A text from a user never
//!   becomes a control token unless the options allow it; [`Tokenizer::encode_guarded`] decides it range by range.
//! - [`Vocabulary`] is what importers fill from a `tokenizer.json`, a SentencePiece model or a GGUF file.
//!
//! ```no_run
//! use siskin_tokenizer::{EncodeOptions, Tokenizer};
//!
//! let file = siskin_format::file::File::open("smollm2.siskin")?;
//! let tokenizer = Tokenizer::of(&file)?;
//! let ids = tokenizer.encode("Why is the sky blue?", EncodeOptions::default())?;
//! println!("{} tokens", ids.len());
//! # Ok::<(), siskin_format::Error>(())
//! ```
//!
//! Token ids equal those of Hugging Face's `tokenizers` for every supported configuration; what is not supported is an
//! error when the vocabulary is imported.

mod aligned;
mod byte_level;
mod charsmap;
mod decode;
mod encode;
mod ends;
mod fallible_alloc;
mod guard;
mod hash;
mod model;
mod normalize;
mod pre_tokenizers;
mod read;
mod record;
mod regex;
mod section;
mod spans;
mod split;
mod token_kind;
mod trie;
mod unicode;
mod vocabulary;
mod write;

#[cfg(test)]
mod hostile_tests;

pub use byte_level::{from_byte_level, to_byte_level};
pub use decode::DecodeOptions;
pub use encode::{EncodeOptions, EncodeScratch};
pub use ends::find_ends;
pub use model::{ModelKind, TokenSpan};
pub use normalize::Normalizer;
pub use pre_tokenizers::{PreTokenizer, named_pre_tokenizer, pre_tokenizer_like};
pub use split::{Behavior, PreTokenizerStep};
pub use token_kind::TokenKind;
pub use vocabulary::{Merges, SpecialIds, TemplateItem, Trim, Vocabulary, VocabularyToken};

use normalize::Steps;
use section::{NONE, SectionTable, SectionView, TokenizerSection, attribute, field, flag, u32_at};
use siskin_format::file::{Bytes, File};
use siskin_format::{Error, ErrorKind, Result};
use split::Cutting;
use trie::Trie;

/// The maximum number of items of a template.
const MAX_TEMPLATE_ITEMS: usize = 64;
/// The maximum number of texts among them, as each is encoded.
const MAX_TEMPLATE_TEXTS: usize = 4;
/// The maximum number of end ids.
const MAX_END_TOKENS: usize = 256;

/// A tokenizer over a mapped section.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    section: TokenizerSection,
    model: ModelKind,
    steps: Steps,
    cutting: Cutting,
    single: Vec<TemplateItem>,
    pair: Vec<TemplateItem>,
    ends: Vec<u32>,
    trim: Trim,
}

impl Tokenizer {
    /// Opens the tokenizer of a model file.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the file has none.
    pub fn of(file: &File) -> Result<Self> {
        Self::open(file.tokenizer().ok_or_else(Self::missing)?)
    }

    /// Returns the error for a file without a tokenizer.
    pub fn missing() -> Error {
        let message = "missing from the file, so the model only takes token ids; put its tokenizer.json beside its \
                       weights, and open or convert them again";
        Error::new(ErrorKind::Missing, "tokenizer", message)
    }

    /// Opens a section written by [`Vocabulary::write`]. Does not read, check or allocate anything whose size depends
    /// on the vocabulary.
    pub fn open(section: Bytes) -> Result<Self> {
        let section = TokenizerSection::open(section)?;
        let model = ModelKind::from_number(section.field(field::MODEL))?;
        let steps = Steps::open(section.table(SectionTable::Normalizer))?;
        let cutting = Cutting::open(section.table(SectionTable::PreTokenizer))?;
        let [single, pair] = read_template(&section)?;
        let trim = Trim::read(&section)?;
        for table in [SectionTable::ModelTrie, SectionTable::SpecialTrie, SectionTable::NormalizedTrie] {
            if Trie::open(section.table(table)).is_none() {
                return Err(Error::corrupt("tokenizer.trie", "the table has the wrong size"));
            }
        }
        let tokens = section.field(field::TOKENS);
        let ends_table = section.table(SectionTable::Ends);
        let ends: Vec<u32> =
            (0..(ends_table.len() / 4).min(MAX_END_TOKENS)).filter_map(|at| u32_at(ends_table, at)).collect();
        if let Some(id) = ends.iter().find(|&&id| id >= tokens) {
            return Err(Error::corrupt("tokenizer.ends", format!("token {id} does not exist")));
        }
        Ok(Self { section, model, steps, cutting, single, pair, ends, trim })
    }

    fn view(&self) -> SectionView<'_> {
        self.section.view()
    }

    fn id(&self, at: usize) -> Option<u32> {
        Some(self.section.field(at)).filter(|&id| id < self.vocabulary_size())
    }

    /// Returns the kind of the tokenizer model.
    pub fn model(&self) -> ModelKind {
        self.model
    }

    /// Returns the number of tokens; all ids are below it.
    pub fn vocabulary_size(&self) -> u32 {
        self.section.field(field::TOKENS)
    }

    /// Returns the id of the token whose [`Tokenizer::token_text`] is `text`.
    pub fn token_to_id(&self, text: &[u8]) -> Option<u32> {
        self.view().find(text).filter(|&id| id < self.vocabulary_size())
    }

    /// Returns the token's stored text: the bytes that an ordinary token decodes to, or the text of a special one.
    pub fn token_text(&self, id: u32) -> Result<&[u8]> {
        self.kind(id)?;
        self.view()
            .text_of(id)
            .ok_or_else(|| Error::corrupt(format!("tokenizer.text[{id}]"), "outside its table"))
    }

    /// Returns the kind of a token.
    pub fn kind(&self, id: u32) -> Result<TokenKind> {
        if id >= self.vocabulary_size() {
            let message = format!("token id {id} is out of range; ids are below {}", self.vocabulary_size());
            return Err(Error::argument("token", message));
        }
        Ok(TokenKind::from_number(self.view().attributes_of(id) & attribute::KIND))
    }

    /// Returns whether the token is a control or unknown token; false for ids out of range.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Ok(TokenKind::Control | TokenKind::Unknown))
    }

    /// Returns the beginning-of-sequence token (BOS).
    pub fn bos(&self) -> Option<u32> {
        self.id(field::BOS)
    }

    /// Returns the end-of-sequence token (EOS).
    pub fn eos(&self) -> Option<u32> {
        self.id(field::EOS)
    }

    /// Returns the end-of-turn token (EOT).
    pub fn eot(&self) -> Option<u32> {
        self.id(field::EOT)
    }

    /// Returns the unknown token (UNK).
    pub fn unk(&self) -> Option<u32> {
        self.id(field::UNKNOWN)
    }

    /// Returns the padding token (PAD).
    pub fn pad(&self) -> Option<u32> {
        self.id(field::PAD)
    }

    /// Returns the separator token between two texts (SEP).
    pub fn sep(&self) -> Option<u32> {
        self.id(field::SEPARATOR)
    }

    /// Returns the classification token (CLS), whose output represents the whole text.
    pub fn cls(&self) -> Option<u32> {
        self.id(field::CLASS)
    }

    /// Returns the mask token (MASK).
    pub fn mask(&self) -> Option<u32> {
        self.id(field::MASK)
    }

    /// Returns all ids that end generation.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// Returns whether the model expects a BOS token.
    pub fn add_bos(&self) -> bool {
        self.view().has(flag::ADD_BOS)
    }

    /// Returns whether the model expects an EOS token.
    pub fn add_eos(&self) -> bool {
        self.view().has(flag::ADD_EOS)
    }
}

fn read_template(section: &TokenizerSection) -> Result<[Vec<TemplateItem>; 2]> {
    let table = section.table(SectionTable::Template);
    let wrong = || Error::corrupt("tokenizer.template", "truncated or names a token that does not exist");
    let mut at = 0;
    let mut word = || {
        at += 1;
        u32_at(table, at - 1).ok_or_else(wrong)
    };
    let mut lists = [Vec::new(), Vec::new()];
    for list in &mut lists {
        let count = word()? as usize;
        if count > MAX_TEMPLATE_ITEMS {
            return Err(too_many(count, "items"));
        }
        for _ in 0..count {
            let (kind, id, token_type) = (word()?, word()?, word()?);
            list.push(match kind {
                0 if id < section.field(field::TOKENS) && id != NONE => {
                    TemplateItem::Token { id, token_type }
                }
                1 => TemplateItem::First { token_type },
                2 => TemplateItem::Second { token_type },
                _ => return Err(wrong()),
            });
        }
        check_template(list)?;
    }
    Ok(lists)
}

/// Rejects a template that expands a text excessively.
fn check_template(items: &[TemplateItem]) -> Result<()> {
    let texts = items.iter().filter(|item| !matches!(item, TemplateItem::Token { .. })).count();
    if items.len() > MAX_TEMPLATE_ITEMS {
        return Err(too_many(items.len(), "items"));
    }
    if texts > MAX_TEMPLATE_TEXTS { Err(too_many(texts, "texts")) } else { Ok(()) }
}

fn too_many(count: usize, what: &str) -> Error {
    Error::corrupt("tokenizer.template", format!("{count} {what} are too many"))
}
