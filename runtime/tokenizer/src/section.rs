//! The tokenizer section: its header, its tables, and reading them in place.
//!
//! `docs/format-tokenizer.md` specifies every byte. Opening checks the header and that every table is inside the
//! section; the contents of tables are checked on every read.

use super::hash;
use super::token_kind::TokenKind;
use siskin_format::file::Bytes;
use siskin_format::{Error, ErrorKind, Result};
use std::ops::Range;

pub(super) const MAGIC: [u8; 4] = *b"SKTZ";
pub(super) const VERSION: u32 = 1;
pub(super) const HEADER: usize = 256;
const DIRECTORY: usize = 96;
/// The id for "none".
pub(super) const NONE: u32 = u32::MAX;
/// The maximum distance of a key from its home slot.
pub(super) const MAX_PROBES: usize = 256;

/// The tables, in the order of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionTable {
    Text,
    TextEnds,
    Attributes,
    Lookup,
    Merges,
    Bytes,
    Scores,
    ModelTrie,
    SpecialTrie,
    NormalizedTrie,
    Joins,
    Normalizer,
    PreTokenizer,
    Template,
    Ends,
    Charsmap,
}

pub(super) const TABLES: usize = 16;

/// Offsets of the header's fields.
pub(super) mod field {
    pub(in super::super) const LENGTH: usize = 8;
    pub(in super::super) const MODEL: usize = 12;
    pub(in super::super) const FLAGS: usize = 16;
    pub(in super::super) const TOKENS: usize = 20;
    pub(in super::super) const SYMBOLS: usize = 24;
    pub(in super::super) const MAX_TOKEN_BYTES: usize = 28;
    pub(in super::super) const BOS: usize = 32;
    pub(in super::super) const EOS: usize = 36;
    pub(in super::super) const EOT: usize = 40;
    pub(in super::super) const UNKNOWN: usize = 44;
    pub(in super::super) const PAD: usize = 48;
    pub(in super::super) const SEPARATOR: usize = 52;
    pub(in super::super) const CLASS: usize = 56;
    pub(in super::super) const MASK: usize = 60;
    pub(in super::super) const UNKNOWN_SCORE: usize = 64;
    pub(in super::super) const MAX_WORD_CHARS: usize = 68;
    pub(in super::super) const TRIM: usize = 72;
}

/// The bits of the header's flags.
pub(super) mod flag {
    /// Tokens are byte strings; a model starts from single bytes.
    pub(in super::super) const BYTE_LEVEL: u32 = 1;
    /// The source spells spaces as U+2581.
    pub(in super::super) const SPACES: u32 = 1 << 1;
    /// Characters without a token become byte tokens.
    pub(in super::super) const BYTE_FALLBACK: u32 = 1 << 2;
    /// Adjacent unknown tokens become one.
    pub(in super::super) const FUSE_UNKNOWN: u32 = 1 << 3;
    /// A piece that is a token becomes that token, regardless of merges (`ignore_merges`).
    pub(in super::super) const WHOLE_FIRST: u32 = 1 << 4;
    pub(in super::super) const ADD_BOS: u32 = 1 << 5;
    pub(in super::super) const ADD_EOS: u32 = 1 << 6;
    /// Decoding removes one space at the start.
    pub(in super::super) const STRIP_LEADING_SPACE: u32 = 1 << 7;
    /// Decoding joins words with spaces, as WordPiece does.
    pub(in super::super) const JOIN_WORDS: u32 = 1 << 8;
    /// Decoding removes spaces before punctuation and contractions.
    pub(in super::super) const CLEAN_SPACES: u32 = 1 << 9;
    /// There are user-defined tokens: matched in text even if control tokens are not.
    pub(in super::super) const USER_DEFINED: u32 = 1 << 10;
    pub(in super::super) const ALL: u32 = (1 << 11) - 1;
}

/// The bits of a token's attributes.
pub(super) mod attribute {
    pub(in super::super) const KIND: u8 = 0b111;
    /// The model encodes the token's own text to exactly this token.
    pub(in super::super) const WHOLE: u8 = 1 << 3;
    pub(in super::super) const STRIP_LEFT: u8 = 1 << 4;
    pub(in super::super) const STRIP_RIGHT: u8 = 1 << 5;
    pub(in super::super) const SINGLE_WORD: u8 = 1 << 6;
    /// WordPiece: the token continues a word.
    pub(in super::super) const CONTINUES: u8 = 1 << 7;
}

/// Reads the `index`-th u32 of a table.
#[inline]
pub(super) fn u32_at(table: &[u8], index: usize) -> Option<u32> {
    let at = index.checked_mul(4)?;
    table.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// The section with its tables located.
#[derive(Clone, Debug)]
pub(super) struct TokenizerSection {
    bytes: Bytes,
    tables: [Range<usize>; TABLES],
}

impl TokenizerSection {
    pub(super) fn open(bytes: Bytes) -> Result<Self> {
        let header = bytes.get(..HEADER).ok_or_else(|| corrupt("header", "the section is too short"))?;
        if header[..4] != MAGIC {
            return Err(corrupt("header.magic", "this is not a tokenizer section"));
        }
        let version = u32_at(header, 1).unwrap_or(0);
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::Version,
                "tokenizer.header.version",
                format!("unknown version {version}, expected {VERSION}; update Siskin or convert again"),
            ));
        }
        if u32_at(header, field::LENGTH / 4) != u32::try_from(bytes.len()).ok() {
            return Err(corrupt("header.length", "the length does not match the section"));
        }
        let mut tables: [Range<usize>; TABLES] = Default::default();
        for (index, table) in tables.iter_mut().enumerate() {
            let start = u32_at(header, DIRECTORY / 4 + 2 * index).unwrap_or(0) as usize;
            let length = u32_at(header, DIRECTORY / 4 + 2 * index + 1).unwrap_or(0) as usize;
            let end = start.checked_add(length).filter(|&end| end <= bytes.len());
            *table = start..end.ok_or_else(|| corrupt(&format!("table[{index}]"), "outside the section"))?;
        }
        let section = Self { bytes, tables };
        section.check_counts()?;
        Ok(section)
    }

    fn check_counts(&self) -> Result<()> {
        let view = self.view();
        let (tokens, symbols) = (self.field(field::TOKENS) as usize, self.field(field::SYMBOLS) as usize);
        if tokens > symbols {
            return Err(corrupt("header.symbols", "there are fewer symbols than tokens"));
        }
        for (name, found, wanted) in [
            ("text_ends", view.text_ends.len(), symbols.checked_mul(4)),
            ("attributes", view.attributes.len(), Some(tokens)),
            ("bytes", view.bytes.len(), Some(1024)),
            ("lookup", view.lookup.len() % 8, Some(0)),
            ("merges", view.merges.len() % 16, Some(0)),
        ] {
            if Some(found) != wanted {
                return Err(corrupt(name, "the table has the wrong size"));
            }
        }
        if self.field(field::FLAGS) & !flag::ALL != 0 {
            return Err(Error::unsupported("tokenizer.header.flags", "unknown flags; update Siskin"));
        }
        Ok(())
    }

    /// Returns a u32 field of the header.
    pub(super) fn field(&self, offset: usize) -> u32 {
        u32_at(&self.bytes, offset / 4).unwrap_or(NONE)
    }

    pub(super) fn table(&self, table: SectionTable) -> &[u8] {
        self.bytes.get(self.tables[table as usize].clone()).unwrap_or_default()
    }

    /// Returns the offset of the table in the section.
    pub(super) fn offset(&self, table: SectionTable) -> usize {
        self.tables[table as usize].start
    }

    pub(super) fn view(&self) -> SectionView<'_> {
        let whole: &[u8] = &self.bytes;
        let table = |table: SectionTable| whole.get(self.tables[table as usize].clone()).unwrap_or_default();
        SectionView {
            flags: u32_at(whole, field::FLAGS / 4).unwrap_or(0),
            tokens: u32_at(whole, field::TOKENS / 4).unwrap_or(0),
            unknown: u32_at(whole, field::UNKNOWN / 4).unwrap_or(NONE),
            longest: u32_at(whole, field::MAX_TOKEN_BYTES / 4).unwrap_or(0) as usize,
            text: table(SectionTable::Text),
            text_ends: table(SectionTable::TextEnds),
            attributes: table(SectionTable::Attributes),
            lookup: table(SectionTable::Lookup),
            merges: table(SectionTable::Merges),
            bytes: table(SectionTable::Bytes),
            scores: table(SectionTable::Scores),
            joins: table(SectionTable::Joins),
            charsmap: table(SectionTable::Charsmap),
        }
    }
}

fn corrupt(location: &str, message: &str) -> Error {
    Error::corrupt(format!("tokenizer.{location}"), message)
}

/// The tables as slices, looked up once for many reads.
#[derive(Clone, Copy)]
pub(super) struct SectionView<'a> {
    pub(super) flags: u32,
    pub(super) tokens: u32,
    pub(super) unknown: u32,
    pub(super) longest: usize,
    pub(super) text: &'a [u8],
    pub(super) text_ends: &'a [u8],
    pub(super) attributes: &'a [u8],
    pub(super) lookup: &'a [u8],
    pub(super) merges: &'a [u8],
    pub(super) bytes: &'a [u8],
    pub(super) scores: &'a [u8],
    pub(super) joins: &'a [u8],
    pub(super) charsmap: &'a [u8],
}

/// The result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) symbol: u32,
}

impl<'a> SectionView<'a> {
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the stored text of a symbol.
    #[inline]
    pub(super) fn text_of(&self, symbol: u32) -> Option<&'a [u8]> {
        let index = symbol as usize;
        let end = u32_at(self.text_ends, index)? as usize;
        let start = if index == 0 { 0 } else { u32_at(self.text_ends, index - 1)? as usize };
        self.text.get(start..end)
    }

    pub(super) fn attributes_of(&self, id: u32) -> u8 {
        self.attributes.get(id as usize).copied().unwrap_or(0)
    }

    /// Returns the symbol whose text is `text`.
    #[inline]
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        let slots = self.lookup.len() / 8;
        if slots == 0 || text.len() > self.longest {
            return None;
        }
        let hash = hash::bytes(text);
        let mut slot = hash::home(hash, slots);
        for _ in 0..MAX_PROBES {
            let entry = self.lookup.get(slot * 8..slot * 8 + 8)?;
            let symbol = u32_at(entry, 1)?;
            if symbol == NONE {
                return None;
            }
            if u32_at(entry, 0)? == hash as u32 && self.text_of(symbol)? == text {
                return Some(symbol);
            }
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        None
    }

    /// Like [`find`](Self::find), if models may produce the symbol from text.
    #[inline]
    pub(super) fn find_ordinary(&self, text: &[u8]) -> Option<u32> {
        let kind = |id| TokenKind::from_number(self.attributes_of(id) & attribute::KIND);
        self.find(text).filter(|&id| id >= self.tokens || kind(id).is_ordinary())
    }

    /// Returns the merge of `left` and `right`.
    #[inline]
    pub(super) fn merge(&self, left: u32, right: u32) -> Option<Merge> {
        let slots = self.merges.len() / 16;
        if slots == 0 {
            return None;
        }
        let mut slot = hash::home(hash::pair(left, right), slots);
        for _ in 0..MAX_PROBES {
            let entry: &[u8; 16] = self.merges.get(slot * 16..slot * 16 + 16)?.try_into().ok()?;
            let found_left = u32_at(entry, 0)?;
            if found_left == left && u32_at(entry, 1)? == right {
                return Some(Merge { symbol: u32_at(entry, 2)?, rank: u32_at(entry, 3)? });
            }
            if found_left == NONE {
                return None;
            }
            slot = if slot + 1 == slots { 0 } else { slot + 1 };
        }
        None
    }

    /// Returns the symbol that a model starts from for a byte.
    #[inline]
    pub(super) fn byte_symbol(&self, byte: u8) -> u32 {
        u32_at(self.bytes, usize::from(byte)).unwrap_or(NONE)
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        u32_at(self.scores, id as usize).map_or(0.0, f32::from_bits)
    }

    /// Returns whether `right` directly follows `left` in some token: text can be cut between other pairs.
    #[inline]
    pub(super) fn joins(&self, left: u8, right: u8) -> bool {
        let bit = usize::from(left) << 8 | usize::from(right);
        self.joins.get(bit >> 3).is_none_or(|bits| bits >> (bit & 7) & 1 == 1)
    }
}
