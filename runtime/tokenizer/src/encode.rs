//! Encoding: text to token ids.

use std::ops::Range;

use super::Tokenizer;
use super::fallible_alloc;
use super::model::{self, ModelBuffers, ModelTables, TokenSpan};
use super::normalize::{Circumstances, Rewriting, Stage};
use super::regex::Matcher;
use super::section::{SectionTable, attribute, field, flag};
use super::split::Piece;
use super::token_kind::TokenKind;
use super::trie::Trie;
use super::unicode::{self, set};
use super::vocabulary::TemplateItem;
use siskin_format::{Error, ErrorKind, Result};

/// The maximum size of a text, in bytes: offsets are 32 bits wide, with room for text that grows when normalized.
const MAX_TEXT_BYTES: usize = 1 << 26;

/// How special tokens are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds the special tokens that the model expects around the text.
    pub add_special: bool,
    /// Parses control tokens in the text. Leave this off for untrusted text; tokens that the vocabulary marks as
    /// user-defined are recognized either way.
    pub parse_special: bool,
}

/// The tokens of two texts, their token types, and the token range of each text.
pub(crate) type Pair = (Vec<TokenSpan>, Vec<u32>, [Range<usize>; 2]);

/// Untrusted spans: ranges of a text, in ascending order and without overlaps, that no control token may overlap.
#[derive(Clone, Copy)]
pub(super) struct Untrusted<'a>(pub(super) &'a [Range<usize>]);

impl Untrusted<'_> {
    /// Returns whether a control token may be at `start..end`.
    fn allows(self, start: usize, end: usize) -> bool {
        let next = self.0.partition_point(|range| range.end <= start);
        self.0.get(next).is_none_or(|range| range.start >= end)
    }
}

/// Reusable buffers of encoding.
#[derive(Debug, Default)]
pub struct EncodeScratch {
    rewriting: Rewriting,
    /// For the text between tokens.
    between: Rewriting,
    matcher: Matcher,
    pieces: Vec<Piece>,
    spare: Vec<Piece>,
    work: ModelBuffers,
    tokens: Vec<TokenSpan>,
}

#[cfg(test)]
impl EncodeScratch {
    /// Returns the capacity of the rewriting buffers.
    pub(super) fn longest_text(&self) -> usize {
        self.rewriting.longest_text()
    }
}

impl Tokenizer {
    /// Encodes `text` to token ids.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let mut scratch = EncodeScratch::default();
        let mut tokens = Vec::new();
        self.assemble(&self.single, [text, ""], options, false, &mut scratch, &mut tokens)?;
        let mut ids = Vec::new();
        fallible_alloc::reserve(&mut ids, tokens.len())?;
        ids.extend(tokens.iter().map(|token| token.id));
        Ok(ids)
    }

    /// Encodes `text` to tokens with the byte range of each in the text. Added special tokens have empty ranges. A
    /// token may be part of a character.
    pub fn encode_with_offsets(&self, text: &str, options: EncodeOptions) -> Result<Vec<TokenSpan>> {
        let mut tokens = Vec::new();
        self.encode_into(text, options, &mut EncodeScratch::default(), &mut tokens)?;
        Ok(tokens)
    }

    /// Replaces the contents of `tokens` by the tokens of `text`, reusing all buffers.
    pub fn encode_into(
        &self,
        text: &str,
        options: EncodeOptions,
        scratch: &mut EncodeScratch,
        tokens: &mut Vec<TokenSpan>,
    ) -> Result<()> {
        self.assemble(&self.single, [text, ""], options, true, scratch, tokens)
    }

    /// Encodes UTF-8 bytes; an error with the position of the first invalid byte otherwise.
    pub fn encode_bytes(&self, text: &[u8], options: EncodeOptions) -> Result<Vec<u32>> {
        let text = std::str::from_utf8(text).map_err(|error| {
            Error::argument("text", format!("not UTF-8 from byte {} on", error.valid_up_to()))
        })?;
        self.encode(text, options)
    }

    /// Encodes two texts as one input, such as a question and a passage, and returns the token type of each token. Offsets
    /// are those of the text that the token comes from.
    pub fn encode_pair(
        &self,
        first: &str,
        second: &str,
        options: EncodeOptions,
    ) -> Result<(Vec<TokenSpan>, Vec<u32>)> {
        let (tokens, token_types, _) = self.encode_pair_apart(first, second, options)?;
        Ok((tokens, token_types))
    }

    /// Like [`encode_pair`](Self::encode_pair), with the token range of each text: not every model distinguishes them
    /// by token types.
    pub fn encode_pair_apart(&self, first: &str, second: &str, options: EncodeOptions) -> Result<Pair> {
        self.apart(&self.pair, [first, second], options)
    }

    /// Encodes a text, and returns the token range of the text without added special tokens.
    pub fn encode_apart(&self, text: &str, options: EncodeOptions) -> Result<(Vec<TokenSpan>, Range<usize>)> {
        let (tokens, _, [location, _]) = self.apart(&self.single, [text, ""], options)?;
        Ok((tokens, location))
    }

    fn apart(&self, template: &[TemplateItem], texts: [&str; 2], options: EncodeOptions) -> Result<Pair> {
        let (mut scratch, mut tokens, mut token_types) = (EncodeScratch::default(), Vec::new(), Vec::new());
        let mut places = [0..0, 0..0];
        for item in self.items(template, options) {
            let before = tokens.len();
            let token_type = self.item(item, texts, options, true, &mut scratch, &mut tokens)?;
            fallible_alloc::reserve(&mut token_types, tokens.len() - before)?;
            token_types.extend(std::iter::repeat_n(token_type, tokens.len() - before));
            match item {
                TemplateItem::First { .. } => places[0] = before..tokens.len(),
                TemplateItem::Second { .. } => places[1] = before..tokens.len(),
                TemplateItem::Token { .. } => {}
            }
        }
        Ok((tokens, token_types, places))
    }

    fn items<'a>(
        &self,
        template: &'a [TemplateItem],
        options: EncodeOptions,
    ) -> impl Iterator<Item = TemplateItem> + 'a {
        let wanted =
            move |item: &&TemplateItem| options.add_special || !matches!(item, TemplateItem::Token { .. });
        template.iter().filter(wanted).copied()
    }

    fn assemble(
        &self,
        template: &[TemplateItem],
        texts: [&str; 2],
        options: EncodeOptions,
        track: bool,
        scratch: &mut EncodeScratch,
        tokens: &mut Vec<TokenSpan>,
    ) -> Result<()> {
        tokens.clear();
        for item in self.items(template, options) {
            self.item(item, texts, options, track, scratch, tokens)?;
        }
        Ok(())
    }

    fn item(
        &self,
        item: TemplateItem,
        texts: [&str; 2],
        options: EncodeOptions,
        track: bool,
        scratch: &mut EncodeScratch,
        tokens: &mut Vec<TokenSpan>,
    ) -> Result<u32> {
        match item {
            TemplateItem::Token { id, token_type } => {
                let end = tokens.last().map_or(0, |token| token.end);
                tokens.push(TokenSpan { id, start: end, end });
                Ok(token_type)
            }
            TemplateItem::First { token_type } => {
                self.text(texts[0], 0, Untrusted(&[]), options, track, scratch, tokens)?;
                Ok(token_type)
            }
            TemplateItem::Second { token_type } => {
                self.text(texts[1], 0, Untrusted(&[]), options, track, scratch, tokens)?;
                Ok(token_type)
            }
        }
    }

    /// Appends the tokens of `text` from byte `first` on, without the post-processor's special tokens.
    pub(super) fn text(
        &self,
        text: &str,
        first: usize,
        untrusted: Untrusted<'_>,
        options: EncodeOptions,
        track: bool,
        scratch: &mut EncodeScratch,
        tokens: &mut Vec<TokenSpan>,
    ) -> Result<()> {
        if text.len() > MAX_TEXT_BYTES {
            let message =
                format!("{} bytes at once; split it into parts of at most {MAX_TEXT_BYTES}", text.len());
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        let run = Run::new(self, options, track);
        let allows = |start, end| untrusted.allows(start, end);
        let mut parts = Parts::new(&run, run.special, text, &allows);
        parts.done = first;
        while let Some(part) = parts.next() {
            match part {
                Part::Token(token) => fallible_alloc::push(tokens, token)?,
                Part::Text(start, end) => {
                    run.segment(&text[start..end], start, untrusted, scratch, tokens)?;
                }
            }
        }
        Ok(())
    }
}

/// The state of one call.
struct Run<'a> {
    tokenizer: &'a Tokenizer,
    tables: ModelTables<'a>,
    special: Trie<'a>,
    normalized: Trie<'a>,
    parse_special: bool,
    track: bool,
}

impl<'a> Run<'a> {
    fn new(tokenizer: &'a Tokenizer, options: EncodeOptions, track: bool) -> Self {
        let section = &tokenizer.section;
        let trie = |table| Trie::open(section.table(table)).unwrap_or(Trie::EMPTY);
        let view = section.view();
        let looks = options.parse_special || view.has(flag::USER_DEFINED);
        let special = |table| if looks { trie(table) } else { Trie::EMPTY };
        Self {
            tokenizer,
            tables: ModelTables {
                view,
                trie: trie(SectionTable::ModelTrie),
                unknown_score: f32::from_bits(section.field(field::UNKNOWN_SCORE)),
                longest_word: section.field(field::MAX_WORD_CHARS) as usize,
            },
            special: special(SectionTable::SpecialTrie),
            normalized: special(SectionTable::NormalizedTrie),
            parse_special: options.parse_special,
            track,
        }
    }

    /// Appends the tokens of `text`, which starts at `base` and contains no special tokens before normalization.
    fn segment(
        &self,
        text: &str,
        base: usize,
        untrusted: Untrusted<'_>,
        scratch: &mut EncodeScratch,
        tokens: &mut Vec<TokenSpan>,
    ) -> Result<()> {
        let circumstances =
            Circumstances { charsmap: self.tables.view.charsmap, is_first: base == 0, bare: false };
        let EncodeScratch { rewriting, between, matcher, pieces, spare, work, tokens: found } = scratch;
        let steps = &self.tokenizer.steps;
        let late = !self.normalized.is_empty() && steps.have(Stage::PreTokenizer);
        let stage = if late { Stage::Normalizers } else { Stage::All };
        let changed =
            steps.run(stage, (text, base), self.track, circumstances, (&mut *rewriting, &mut *matcher))?;
        let now = if changed { rewriting.current.text.as_str() } else { text };
        found.clear();
        let allows = |start, end| match changed {
            _ if untrusted.0.is_empty() => true,
            // Normalization changes offsets.
            true if self.track => {
                let (start, end) = rewriting.current.source(start..end);
                untrusted.allows(start as usize, end as usize)
            }
            true => false,
            false => untrusted.allows(base + start, base + end),
        };
        let mut parts = Parts::new(self, self.normalized, now, &allows);
        while let Some(part) = parts.next() {
            let (start, end) = match part {
                Part::Token(token) => {
                    fallible_alloc::push(found, token)?;
                    continue;
                }
                Part::Text(start, end) => (start, end),
            };
            let mut part = &now[start..end];
            let mut moved = false;
            if late {
                let circumstances = Circumstances { is_first: base == 0 && start == 0, ..circumstances };
                moved = steps.run(
                    Stage::PreTokenizer,
                    (part, start),
                    self.track,
                    circumstances,
                    (&mut *between, &mut *matcher),
                )?;
            }
            if moved {
                part = &between.current.text;
            }
            let first = found.len();
            self.tokenizer.cutting.run(part, matcher, pieces, spare)?;
            for piece in pieces.iter() {
                let range = (piece.start as usize, piece.end as usize);
                model::encode(self.tokenizer.model, &self.tables, part.as_bytes(), range, work, found)?;
            }
            for token in &mut found[first..] {
                (token.start, token.end) = match moved && self.track {
                    true => between.current.source(token.start as usize..token.end as usize),
                    false => (start as u32 + token.start, start as u32 + token.end),
                };
            }
        }
        let location = |token: &TokenSpan| {
            let (start, end) = match changed {
                true if self.track => rewriting.current.source(token.start as usize..token.end as usize),
                _ => (base as u32 + token.start, base as u32 + token.end),
            };
            TokenSpan { id: token.id, start, end }
        };
        fallible_alloc::reserve(tokens, found.len())?;
        tokens.extend(found.iter().map(location));
        Ok(())
    }

    /// Returns the longest special token that starts at `at`.
    fn special_at(
        &self,
        trie: Trie<'_>,
        text: &str,
        at: usize,
        allows: &dyn Fn(usize, usize) -> bool,
    ) -> Option<(u32, usize)> {
        let view = &self.tables.view;
        let mut longest = None;
        trie.prefixes(&text.as_bytes()[at..], 0, |length, id| {
            let attributes = view.attributes_of(id);
            let is_kept_whole = TokenKind::from_number(attributes & attribute::KIND).is_kept_whole();
            let is_allowed = match allows(at, at + length) {
                true => is_kept_whole || self.parse_special,
                // A token over trusted and untrusted text must not consume a part of a control token.
                false => is_kept_whole && !self.cuts_control(trie, text, at + 1..at + length, allows),
            };
            if is_allowed
                && id < view.tokens
                && text.is_char_boundary(at + length)
                && (attributes & attribute::SINGLE_WORD == 0 || stands_alone(text, at, at + length))
            {
                longest = Some((id, at + length));
            }
        });
        longest
    }

    /// Returns whether a control token may begin in `range` and end after it.
    fn cuts_control(
        &self,
        trie: Trie<'_>,
        text: &str,
        range: Range<usize>,
        allows: &dyn Fn(usize, usize) -> bool,
    ) -> bool {
        let mut cuts = false;
        for at in range.clone().filter(|&at| self.parse_special && text.is_char_boundary(at)) {
            trie.prefixes(&text.as_bytes()[at..], 0, |length, id| {
                let kind = TokenKind::from_number(self.tables.view.attributes_of(id) & attribute::KIND);
                cuts |= at + length > range.end && !kind.is_kept_whole() && allows(at, at + length);
            });
        }
        cuts
    }
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    const WORD: u32 = set::LETTER | set::MARK | set::DECIMAL | set::LETTER_NUMBER | set::CONNECTOR;
    let is_word =
        |character: Option<char>| character.is_some_and(|character| unicode::is_in(character, WORD));
    !is_word(text[..start].chars().next_back()) && !is_word(text[end..].chars().next())
}

enum Part {
    Text(usize, usize),
    Token(TokenSpan),
}

/// Iterates over a text split at its special tokens.
struct Parts<'a, 'b> {
    run: &'b Run<'a>,
    trie: Trie<'a>,
    text: &'b str,
    /// Returns whether a control token may be at a byte range.
    allows: &'b dyn Fn(usize, usize) -> bool,
    /// Whether a special token starts with the byte.
    starts: [bool; 256],
    /// The start of the text that was not returned yet.
    done: usize,
    /// A token that follows the text that was returned last.
    found: Option<TokenSpan>,
}

impl<'a, 'b> Parts<'a, 'b> {
    fn new(
        run: &'b Run<'a>,
        trie: Trie<'a>,
        text: &'b str,
        allows: &'b dyn Fn(usize, usize) -> bool,
    ) -> Self {
        let starts = std::array::from_fn(|byte| !trie.is_empty() && trie.child(0, byte as u8).is_some());
        Self { run, trie, text, allows, starts, done: 0, found: None }
    }

    fn next(&mut self) -> Option<Part> {
        if let Some(token) = self.found.take() {
            self.done = token.end as usize;
            return Some(Part::Token(token));
        }
        if self.done >= self.text.len() {
            return None;
        }
        let start = self.done;
        let Some((id, from, to)) = self.search(start) else {
            self.done = self.text.len();
            return Some(Part::Text(start, self.text.len()));
        };
        let (from, to) = self.widen(id, (start, from), to);
        let token = TokenSpan { id, start: from as u32, end: to as u32 };
        if from > start {
            self.found = Some(token);
            return Some(Part::Text(start, from));
        }
        self.done = to;
        Some(Part::Token(token))
    }

    fn search(&self, start: usize) -> Option<(u32, usize, usize)> {
        if self.trie.is_empty() {
            return None;
        }
        let bytes = self.text.as_bytes();
        let mut at = start;
        loop {
            at += bytes.get(at..)?.iter().position(|&byte| self.starts[usize::from(byte)])?;
            if self.text.is_char_boundary(at)
                && let Some((id, end)) = self.run.special_at(self.trie, self.text, at, self.allows)
            {
                return Some((id, at, end));
            }
            at += 1;
        }
    }

    /// Extends a token over adjacent whitespace if its attributes say so.
    fn widen(&self, id: u32, (start, from): (usize, usize), to: usize) -> (usize, usize) {
        let attributes = self.run.tables.view.attributes_of(id);
        let left = &self.text[start..from];
        let right = &self.text[to..];
        let from = if attributes & attribute::STRIP_LEFT != 0 { start + left.trim_end().len() } else { from };
        // Scanned only if needed: a text may consist of whitespace and such tokens alone, which would take quadratic
        // time.
        let to = match attributes & attribute::STRIP_RIGHT != 0 {
            true => to + right.len() - right.trim_start().len(),
            false => to,
        };
        (from, to)
    }
}
