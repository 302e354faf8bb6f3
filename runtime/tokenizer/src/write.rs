//! Writing a section.

use super::charsmap::Charsmap;
use super::check_template;
use super::hash;
use super::model::{self, ModelBuffers, ModelKind, ModelTables};
use super::normalize::{Circumstances, Normalizer, Rewriting, Stage, Steps};
use super::record::{MAX_RECORDS, TokenizerRecord};
use super::regex::Matcher;
use super::section::{
    HEADER, MAGIC, MAX_PROBES, NONE, SectionTable, TABLES, TokenizerSection, VERSION, attribute, field, flag,
};
use super::split::Cutting;
use super::token_kind::TokenKind;
use super::trie::{self, Trie};
use super::vocabulary::{Merges, TemplateItem, Vocabulary};
use siskin_format::file::Bytes;
use siskin_format::{Error, Result};
use std::collections::HashMap;

const MAX_TOKENS: usize = 1 << 24;
const MAX_TOKEN_BYTES: usize = 1 << 16;
/// The maximum size of a token for which merges are created from scores, in bytes, as their number grows quadratically.
const MAX_SCORED_TOKEN_BYTES: usize = 1024;
const MAX_MARKED_TOKEN_BYTES: usize = 256;
const DIRECTORY: usize = 96;

/// A merge: left and right symbol, result, rank.
type Merge = [u32; 4];

impl Vocabulary {
    /// Serializes the vocabulary as a section; [`super::Tokenizer::open`] reads it.
    pub fn write(&self) -> Result<Vec<u8>> {
        write(self)
    }
}

fn write(vocabulary: &Vocabulary) -> Result<Vec<u8>> {
    check(vocabulary)?;
    let mut symbols = Symbols::new(vocabulary);
    let merges = match (vocabulary.model, &vocabulary.merges) {
        (ModelKind::Bpe, Merges::Listed(pairs)) => listed_merges(&mut symbols, pairs)?,
        (ModelKind::Bpe, Merges::FromScores) => scored_merges(&mut symbols, vocabulary)?,
        _ => Vec::new(),
    };
    let mut section = assemble(vocabulary, &symbols, &merges)?;
    mark_whole(vocabulary, &mut section)?;
    Ok(section)
}

fn check(vocabulary: &Vocabulary) -> Result<()> {
    Steps::of(&vocabulary.normalizers)?;
    Cutting::of(vocabulary.pre_tokenizers.iter().map(|step| step.record()))?;
    if vocabulary.normalizers.contains(&Normalizer::Charsmap) {
        Charsmap::open(&vocabulary.charsmap)?;
    }
    check_template(&vocabulary.single)?;
    check_template(&vocabulary.pair)?;
    if vocabulary.normalizers.len().max(vocabulary.pre_tokenizers.len()) > MAX_RECORDS {
        let message = format!("there are more than {MAX_RECORDS} steps");
        return Err(Error::unsupported("tokenizer.normalizer", message));
    }
    let count = vocabulary.tokens.len();
    if count == 0 || count > MAX_TOKENS {
        return Err(Error::corrupt(
            "tokenizer.tokens",
            format!("{count} tokens; expected 1 to {MAX_TOKENS}"),
        ));
    }
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if token.text.len() > MAX_TOKEN_BYTES {
            let message = format!("{} bytes long; at most {MAX_TOKEN_BYTES} are allowed", token.text.len());
            return Err(Error::corrupt(format!("tokenizer.tokens[{id}]"), message));
        }
        if !token.score.is_finite() {
            return Err(Error::corrupt(
                format!("tokenizer.scores[{id}]"),
                "the score is not a finite number",
            ));
        }
    }
    let special = &vocabulary.special;
    let roles = [
        special.bos,
        special.eos,
        special.eot,
        special.unknown,
        special.pad,
        special.separator,
        special.class,
        special.mask,
    ];
    let items = vocabulary.single.iter().chain(&vocabulary.pair).filter_map(|item| match item {
        TemplateItem::Token { id, .. } => Some(*id),
        _ => None,
    });
    match roles
        .into_iter()
        .flatten()
        .chain(items)
        .chain(vocabulary.ends.iter().copied())
        .find(|&id| id as usize >= count)
    {
        Some(id) => {
            Err(Error::corrupt("tokenizer.special", format!("token {id} does not exist, there are {count}")))
        }
        None => Ok(()),
    }
}

/// Tokens, and texts of merges that are not tokens.
struct Symbols<'a> {
    tokens: usize,
    extra: Vec<Vec<u8>>,
    index: HashMap<std::borrow::Cow<'a, [u8]>, u32>,
}

impl<'a> Symbols<'a> {
    fn new(vocabulary: &'a Vocabulary) -> Self {
        let mut index = HashMap::with_capacity(vocabulary.tokens.len());
        for (id, token) in vocabulary.tokens.iter().enumerate() {
            if token.kind.is_ordinary() && !token.text.is_empty() {
                index.entry(token.text.as_slice().into()).or_insert(id as u32);
            }
        }
        Self { tokens: vocabulary.tokens.len(), extra: Vec::new(), index }
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        self.index.get(text).copied()
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        self.find(text).unwrap_or_else(|| {
            let symbol = (self.tokens + self.extra.len()) as u32;
            self.extra.push(text.to_vec());
            self.index.insert(text.to_vec().into(), symbol);
            symbol
        })
    }
}

fn listed_merges(symbols: &mut Symbols<'_>, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<Vec<Merge>> {
    if pairs.len() > MAX_TOKENS {
        return Err(Error::corrupt("tokenizer.merges", format!("there are more than {MAX_TOKENS} merges")));
    }
    let mut seen = HashMap::with_capacity(pairs.len());
    let mut merges = Vec::with_capacity(pairs.len());
    for (rank, (left, right)) in pairs.iter().enumerate() {
        if left.is_empty() || right.is_empty() {
            return Err(Error::corrupt(format!("tokenizer.merges[{rank}]"), "one side is empty"));
        }
        if left.len() + right.len() > MAX_TOKEN_BYTES {
            return Err(Error::corrupt(format!("tokenizer.merges[{rank}]"), "the result is too long"));
        }
        let whole = [left.as_slice(), right.as_slice()].concat();
        let (left, right, merged) = (symbols.intern(left), symbols.intern(right), symbols.intern(&whole));
        if seen.insert((left, right), ()).is_none() {
            merges.push([left, right, merged, rank as u32]);
        }
    }
    Ok(merges)
}

fn scored_merges(symbols: &mut Symbols<'_>, vocabulary: &Vocabulary) -> Result<Vec<Merge>> {
    let mut scores: Vec<f32> = vocabulary.tokens.iter().map(|token| token.score).collect();
    scores.sort_unstable_by(|a, b| b.total_cmp(a));
    scores.dedup();
    let mut merges = Vec::new();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        let text = token.text.as_slice();
        if !token.kind.is_ordinary() || symbols.find(text) != Some(id as u32) {
            continue;
        }
        if text.len() > MAX_SCORED_TOKEN_BYTES {
            let message =
                format!("{} bytes long; at most {MAX_SCORED_TOKEN_BYTES} are supported", text.len());
            return Err(Error::unsupported(format!("tokenizer.tokens[{id}]"), message));
        }
        let rank = scores.partition_point(|&score| score > token.score) as u32;
        let cuts = (1..text.len()).filter(|&at| vocabulary.byte_level || text[at] & 0xC0 != 0x80);
        for at in cuts {
            let (left, right) = text.split_at(at);
            let side = |symbols: &mut Symbols<'_>, side: &[u8]| {
                let is_character = match vocabulary.byte_level {
                    true => side.len() == 1,
                    false => side.iter().skip(1).all(|byte| byte & 0xC0 == 0x80),
                };
                if is_character { Some(symbols.intern(side)) } else { symbols.find(side) }
            };
            // A text that is not a token may be a symbol, but only if it is a single character.
            if let (Some(left), Some(right)) = (side(symbols, left), side(symbols, right)) {
                merges.push([left, right, id as u32, rank]);
            }
        }
    }
    Ok(merges)
}

fn assemble(vocabulary: &Vocabulary, symbols: &Symbols<'_>, merges: &[Merge]) -> Result<Vec<u8>> {
    let mut tables: [Vec<u8>; TABLES] = Default::default();
    let mut put = |table: SectionTable, bytes: Vec<u8>| tables[table as usize] = bytes;
    let texts = || {
        vocabulary
            .tokens
            .iter()
            .map(|token| token.text.as_slice())
            .chain(symbols.extra.iter().map(Vec::as_slice))
    };
    let mut end = 0u64;
    let mut ends = Vec::new();
    for text in texts() {
        end += text.len() as u64;
        let end = u32::try_from(end).map_err(|_| too_large("tokenizer.text"))?;
        ends.extend(end.to_le_bytes());
    }
    put(SectionTable::Text, texts().flatten().copied().collect());
    put(SectionTable::TextEnds, ends);
    put(SectionTable::Attributes, vocabulary.tokens.iter().map(attributes).collect());
    put(SectionTable::Lookup, lookup(vocabulary, symbols)?);
    put(SectionTable::Merges, merge_table(merges)?);
    put(SectionTable::Bytes, bytes_table(vocabulary, symbols));
    if vocabulary.model == ModelKind::Unigram {
        put(
            SectionTable::Scores,
            vocabulary.tokens.iter().flat_map(|token| token.score.to_le_bytes()).collect(),
        );
    }
    put(SectionTable::ModelTrie, model_trie(vocabulary)?);
    let (special, normalized) = special_tries(vocabulary)?;
    put(SectionTable::SpecialTrie, special);
    put(SectionTable::NormalizedTrie, normalized);
    if !vocabulary.byte_level && matches!(vocabulary.model, ModelKind::Bpe | ModelKind::Unigram) {
        put(SectionTable::Joins, joins(vocabulary, symbols));
    }
    put(SectionTable::Normalizer, records(vocabulary.normalizers.iter().map(|step| step.record())));
    put(SectionTable::PreTokenizer, records(vocabulary.pre_tokenizers.iter().map(|step| step.record())));
    put(SectionTable::Template, template(vocabulary));
    put(SectionTable::Ends, vocabulary.ends.iter().flat_map(|id| id.to_le_bytes()).collect());
    put(SectionTable::Charsmap, vocabulary.charsmap.clone());
    let longest = texts().map(<[u8]>::len).max().unwrap_or(0);
    lay_out(vocabulary, &tables, symbols.tokens + symbols.extra.len(), longest)
}

/// Lays out the header, the directory, and the tables, each at a multiple of eight bytes.
fn lay_out(
    vocabulary: &Vocabulary,
    tables: &[Vec<u8>; TABLES],
    symbols: usize,
    longest: usize,
) -> Result<Vec<u8>> {
    let mut out = vec![0; HEADER];
    out[..4].copy_from_slice(&MAGIC);
    for (index, table) in tables.iter().enumerate() {
        let at = DIRECTORY + 8 * index;
        let offset = u32::try_from(out.len()).map_err(|_| too_large("tokenizer"))?;
        let length = u32::try_from(table.len()).map_err(|_| too_large("tokenizer"))?;
        out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        out[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
        out.extend(table);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    let length = u32::try_from(out.len()).map_err(|_| too_large("tokenizer"))?;
    let special = &vocabulary.special;
    let id = |id: Option<u32>| id.unwrap_or(NONE);
    for (at, value) in [
        (4, VERSION),
        (field::LENGTH, length),
        (field::MODEL, vocabulary.model as u32),
        (field::FLAGS, flags(vocabulary)),
        (field::TOKENS, vocabulary.tokens.len() as u32),
        (field::SYMBOLS, symbols as u32),
        (field::MAX_TOKEN_BYTES, longest as u32),
        (field::BOS, id(special.bos)),
        (field::EOS, id(special.eos)),
        (field::EOT, id(special.eot)),
        (field::UNKNOWN, id(special.unknown)),
        (field::PAD, id(special.pad)),
        (field::SEPARATOR, id(special.separator)),
        (field::CLASS, id(special.class)),
        (field::MASK, id(special.mask)),
        (field::UNKNOWN_SCORE, unknown_score(vocabulary).to_bits()),
        (field::MAX_WORD_CHARS, vocabulary.longest_word),
        (field::TRIM, vocabulary.trim as u32),
    ] {
        out[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    Ok(out)
}

fn too_large(location: &str) -> Error {
    Error::unsupported(location, "the tokenizer is larger than 4 GiB")
}

fn flags(vocabulary: &Vocabulary) -> u32 {
    [
        (vocabulary.byte_level, flag::BYTE_LEVEL),
        (vocabulary.spells_spaces, flag::SPACES),
        (vocabulary.byte_fallback, flag::BYTE_FALLBACK),
        (vocabulary.fuse_unknown, flag::FUSE_UNKNOWN),
        (vocabulary.whole_first, flag::WHOLE_FIRST),
        (vocabulary.add_bos, flag::ADD_BOS),
        (vocabulary.add_eos, flag::ADD_EOS),
        (vocabulary.strip_leading_space, flag::STRIP_LEADING_SPACE),
        (vocabulary.join_words, flag::JOIN_WORDS),
        (vocabulary.clean_spaces, flag::CLEAN_SPACES),
        (vocabulary.tokens.iter().any(|token| token.kind.is_kept_whole()), flag::USER_DEFINED),
    ]
    .into_iter()
    .filter(|(set, _)| *set)
    .fold(0, |flags, (_, flag)| flags | flag)
}

fn attributes(token: &super::vocabulary::VocabularyToken) -> u8 {
    token.kind as u8
        | [
            (token.strip_left, attribute::STRIP_LEFT),
            (token.strip_right, attribute::STRIP_RIGHT),
            (token.single_word, attribute::SINGLE_WORD),
            (token.continues, attribute::CONTINUES),
        ]
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(0, |bits, (_, bit)| bits | bit)
}

fn unknown_score(vocabulary: &Vocabulary) -> f32 {
    vocabulary.unknown_score.unwrap_or_else(|| {
        let normal = vocabulary.tokens.iter().filter(|token| token.kind == TokenKind::Normal);
        normal.map(|token| token.score).fold(0.0, f32::min) - 10.0
    })
}

/// Builds the hash table of symbols: slots of (low half of the hash, symbol), open addressing.
fn lookup(vocabulary: &Vocabulary, symbols: &Symbols<'_>) -> Result<Vec<u8>> {
    let mut entries: Vec<(&[u8], u32)> =
        symbols.index.iter().map(|(text, &symbol)| (&**text, symbol)).collect();
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if !token.kind.is_ordinary() && !token.text.is_empty() {
            entries.push((&token.text, id as u32));
        }
    }
    // Ordinary tokens come first, so that they are found before others with the same text.
    entries.sort_unstable_by_key(|&(text, symbol)| {
        let ordinary = vocabulary.tokens.get(symbol as usize).is_none_or(|token| token.kind.is_ordinary());
        (!ordinary, symbol, text.len())
    });
    let mut seen = std::collections::HashSet::with_capacity(entries.len());
    entries.retain(|(text, _)| seen.insert(*text));
    let rows: Vec<(u64, [u32; 2])> = entries
        .iter()
        .map(|&(text, symbol)| {
            let hash = hash::bytes(text);
            (hash, [hash as u32, symbol])
        })
        .collect();
    open_addressing(&rows)
}

/// Builds the hash table of merges: slots of (left, right, result, rank), open addressing.
fn merge_table(merges: &[Merge]) -> Result<Vec<u8>> {
    let rows: Vec<(u64, Merge)> =
        merges.iter().map(|merge| (hash::pair(merge[0], merge[1]), *merge)).collect();
    open_addressing(&rows)
}

/// Builds a hash table with a load factor of two thirds, or lower if a key would be too far from its home slot.
fn open_addressing<const N: usize>(rows: &[(u64, [u32; N])]) -> Result<Vec<u8>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut slots = rows.len() + rows.len() / 2 + 1;
    for _ in 0..8 {
        if let Some(table) = fill(rows, slots) {
            return Ok(table.iter().flatten().flat_map(|value| value.to_le_bytes()).collect());
        }
        slots += slots / 2;
    }
    Err(Error::unsupported("tokenizer.lookup", "too many keys share a hash"))
}

fn fill<const N: usize>(rows: &[(u64, [u32; N])], slots: usize) -> Option<Vec<[u32; N]>> {
    let mut table = vec![[NONE; N]; slots];
    for (hash, row) in rows {
        let home = hash::home(*hash, slots);
        // One probe is reserved for the empty slot that ends a search.
        let free =
            (0..MAX_PROBES - 1).map(|step| (home + step) % slots).find(|&slot| table[slot] == [NONE; N])?;
        table[free] = *row;
    }
    Some(table)
}

fn bytes_table(vocabulary: &Vocabulary, symbols: &Symbols<'_>) -> Vec<u8> {
    let last = if vocabulary.byte_level { 255 } else { 127 };
    let symbol = |byte: u8| if byte <= last { symbols.find(&[byte]).unwrap_or(NONE) } else { NONE };
    (0..=255).flat_map(|byte| symbol(byte).to_le_bytes()).collect()
}

fn model_trie(vocabulary: &Vocabulary) -> Result<Vec<u8>> {
    let ordinary = vocabulary
        .tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.kind.is_ordinary() && !token.text.is_empty());
    match vocabulary.model {
        ModelKind::Bpe | ModelKind::WordLevel => Ok(Vec::new()),
        ModelKind::Unigram => {
            let mut entries: Vec<(&[u8], u32)> =
                ordinary.map(|(id, token)| (token.text.as_slice(), id as u32)).collect();
            trie::build(&mut entries)
        }
        ModelKind::WordPiece => {
            let keys: Vec<(Vec<u8>, u32)> = ordinary
                .map(|(id, token)| {
                    let mut key = if token.continues { vec![model::WORDPIECE_CONTINUES] } else { Vec::new() };
                    key.extend(&token.text);
                    (key, id as u32)
                })
                .collect();
            let mut entries: Vec<(&[u8], u32)> = keys.iter().map(|(key, id)| (key.as_slice(), *id)).collect();
            trie::build(&mut entries)
        }
    }
}

/// Builds the tries of tokens that are matched before and after normalization.
fn special_tries(vocabulary: &Vocabulary) -> Result<(Vec<u8>, Vec<u8>)> {
    let steps = Steps::of(&vocabulary.normalizers)?;
    let (mut raw, mut normalized) = (Vec::new(), Vec::new());
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        let is_special =
            token.kind.is_kept_whole() || matches!(token.kind, TokenKind::Control | TokenKind::Unknown);
        if !is_special || token.text.is_empty() {
            continue;
        }
        let text = if token.normalized { normal_form(vocabulary, &steps, &token.text)? } else { None };
        match text {
            Some(text) if !text.is_empty() => normalized.push((text, id as u32)),
            _ => raw.push((token.text.clone(), id as u32)),
        }
    }
    let build = |keys: &[(Vec<u8>, u32)]| {
        let mut entries: Vec<(&[u8], u32)> = keys.iter().map(|(key, id)| (key.as_slice(), *id)).collect();
        trie::build(&mut entries)
    };
    Ok((build(&raw)?, build(&normalized)?))
}

fn normal_form(vocabulary: &Vocabulary, steps: &Steps, text: &[u8]) -> Result<Option<Vec<u8>>> {
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    if !steps.have(Stage::Normalizers) {
        return Ok(None);
    }
    let circumstances = Circumstances { charsmap: &vocabulary.charsmap, is_first: false, bare: true };
    let (mut rewriting, mut matcher) = (Rewriting::default(), Matcher::default());
    let changed =
        steps.run(Stage::Normalizers, (text, 0), false, circumstances, (&mut rewriting, &mut matcher))?;
    Ok(Some(if changed { rewriting.current.text.into_bytes() } else { text.as_bytes().to_vec() }))
}

/// Builds a bitmap of all pairs of bytes that are adjacent in some symbol.
fn joins(vocabulary: &Vocabulary, symbols: &Symbols<'_>) -> Vec<u8> {
    let mut bits = vec![0u8; 8192];
    let ordinary =
        vocabulary.tokens.iter().filter(|token| token.kind.is_ordinary()).map(|token| token.text.as_slice());
    for text in ordinary.chain(symbols.extra.iter().map(Vec::as_slice)) {
        for pair in text.windows(2) {
            let bit = usize::from(pair[0]) << 8 | usize::from(pair[1]);
            bits[bit >> 3] |= 1 << (bit & 7);
        }
    }
    bits
}

fn records(records: impl Iterator<Item = TokenizerRecord>) -> Vec<u8> {
    records.fold(Vec::new(), |mut out, record| {
        record.write(&mut out);
        out
    })
}

fn template(vocabulary: &Vocabulary) -> Vec<u8> {
    let mut out = Vec::new();
    for items in [&vocabulary.single, &vocabulary.pair] {
        out.push(items.len() as u32);
        for item in items {
            out.extend(match *item {
                TemplateItem::Token { id, token_type } => [0, id, token_type],
                TemplateItem::First { token_type } => [1, 0, token_type],
                TemplateItem::Second { token_type } => [2, 0, token_type],
            });
        }
    }
    out.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Marks the tokens that the model produces from their own text. Long tokens are not tested, as that would take too
/// long; they are found without the mark.
fn mark_whole(vocabulary: &Vocabulary, bytes: &mut [u8]) -> Result<()> {
    if !matches!(vocabulary.model, ModelKind::Bpe | ModelKind::Unigram) {
        return Ok(());
    }
    let section = TokenizerSection::open(Bytes::new(bytes.to_vec()))?;
    let trie = Trie::open(section.table(SectionTable::ModelTrie)).unwrap_or(Trie::EMPTY);
    let mut view = section.view();
    view.flags &= !flag::WHOLE_FIRST;
    view.joins = &[];
    let tables = ModelTables { view, trie, unknown_score: unknown_score(vocabulary), longest_word: 0 };
    let (mut work, mut out) = (ModelBuffers::default(), Vec::new());
    let attributes = section.offset(SectionTable::Attributes);
    for (id, token) in vocabulary.tokens.iter().enumerate() {
        if !token.kind.is_ordinary() || token.text.is_empty() || token.text.len() > MAX_MARKED_TOKEN_BYTES {
            continue;
        }
        out.clear();
        model::encode(vocabulary.model, &tables, &token.text, (0, token.text.len()), &mut work, &mut out)?;
        if let [only] = out.as_slice()
            && only.id == id as u32
        {
            bytes[attributes + id] |= attribute::WHOLE;
        }
    }
    Ok(())
}
