//! Tokenized documents with random access, and sinks for them.

use std::ops::Range;

use siskin_format::{Error, ErrorKind, Result};

use super::hash::fold;

/// The maximum number of token lists of a record.
pub const MAX_PARTS: usize = 8;

/// A tokenized document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizedDocument {
    /// A token list for each text of the document, without special tokens. An omitted optional text is an empty list.
    pub parts: Vec<Vec<u32>>,
    /// Its class.
    pub label: Option<u32>,
    /// The hash of the document before tokenization: see [`Document::hash`](super::Document::hash).
    pub hash: u64,
}

/// Records with random access.
pub trait Records: Send + Sync {
    /// Returns the number of records.
    fn count(&self) -> usize;

    /// Returns the number of token lists per record.
    fn parts(&self) -> usize;

    /// Returns the vocabulary size; ids lie below.
    fn vocabulary(&self) -> u32;

    /// Returns the number of tokens of a list; 0 if the list does not exist.
    fn length(&self, record: usize, part: usize) -> usize;

    /// Appends a range of a list's tokens to `out`.
    fn read(&self, record: usize, part: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()>;

    /// Returns the class of a record.
    fn label(&self, record: usize) -> Option<u32>;

    /// Returns a hash of all records in order; other records have another hash with near certainty.
    fn fingerprint(&self) -> u64;

    /// Returns all tokens of a list.
    fn list(&self, record: usize, part: usize) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.read(record, part, 0..self.length(record, part), &mut tokens)?;
        Ok(tokens)
    }
}

/// Receives records one after the other.
pub trait Sink {
    /// Takes the next record.
    fn push(&mut self, record: &TokenizedDocument) -> Result<()>;
}

/// The offsets of the lists of records, and their classes.
#[derive(Clone, Debug)]
pub(super) struct RecordTable {
    pub(super) parts: usize,
    /// The first token of each list, and the end of the last.
    pub(super) starts: Vec<u64>,
    /// A class for each record, or empty.
    pub(super) labels: Vec<u32>,
    /// A hash of all tokens and classes; 0 only without records.
    pub(super) fingerprint: u64,
}

impl RecordTable {
    /// Creates an empty table for records with `parts` token lists each.
    pub(super) fn new(parts: usize) -> Result<Self> {
        if !(1..=MAX_PARTS).contains(&parts) {
            let message = format!("{parts}, but a record has from 1 to {MAX_PARTS} lists of tokens");
            return Err(Error::argument("parts", message));
        }
        Ok(Self { parts, starts: vec![0], labels: Vec::new(), fingerprint: 0 })
    }

    pub(super) fn count(&self) -> usize {
        (self.starts.len() - 1) / self.parts
    }

    /// Adds the next record, except for its tokens.
    pub(super) fn push(&mut self, record: &TokenizedDocument, vocabulary: u32) -> Result<()> {
        let place = || format!("record {}", self.count());
        if record.parts.len() > self.parts {
            let message =
                format!("{} lists of tokens, but the others have {}", record.parts.len(), self.parts);
            return Err(Error::argument(place(), message));
        }
        if let Some(id) = record.parts.iter().flatten().find(|&&id| id >= vocabulary) {
            let message = format!(
                "contains token {id}, beyond the vocabulary of {vocabulary}; use the model's tokenizer"
            );
            return Err(Error::argument(place(), message));
        }
        let labeled = !self.labels.is_empty();
        if self.count() > 0 && labeled != record.label.is_some() {
            let what = if labeled {
                "no class, but earlier ones have one"
            } else {
                "a class, but earlier ones have none"
            };
            return Err(Error::argument(
                place(),
                format!("{what}; either all records or none must have one"),
            ));
        }
        self.labels.extend(record.label);
        let mut end = self.starts.last().copied().unwrap_or(0);
        self.fingerprint = fold(self.fingerprint, u64::from(record.label.unwrap_or(u32::MAX)));
        for part in 0..self.parts {
            let tokens = record.parts.get(part).map_or(&[][..], Vec::as_slice);
            end += tokens.len() as u64;
            self.starts.push(end);
            self.fingerprint = super::hash::tokens(self.fingerprint, tokens).max(1);
        }
        Ok(())
    }

    /// Returns the range of a list among all tokens; empty if the list does not exist.
    pub(super) fn span(&self, record: usize, part: usize) -> Range<u64> {
        let list = record.checked_mul(self.parts).and_then(|first| first.checked_add(part));
        let found = list.filter(|_| part < self.parts).and_then(|list| {
            let ends = self.starts.get(list..list.checked_add(2)?)?;
            Some(ends[0]..ends[1])
        });
        found.unwrap_or(0..0)
    }

    /// Returns a part of a list as a range among all tokens.
    pub(super) fn part(&self, record: usize, part: usize, range: &Range<usize>) -> Result<Range<u64>> {
        let span = self.span(record, part);
        let length = span.end - span.start;
        if range.start > range.end || range.end as u64 > length {
            let message = format!("tokens {range:?} requested, {length} available");
            return Err(Error::argument(format!("record {record}, part {part}"), message));
        }
        Ok(span.start + range.start as u64..span.start + range.end as u64)
    }
}

/// Records in memory.
#[derive(Clone, Debug)]
pub struct RecordsInMemory {
    vocabulary: u32,
    table: RecordTable,
    tokens: Vec<u32>,
}

impl RecordsInMemory {
    /// Creates an empty list of records with `parts` token lists each and ids below `vocabulary`.
    pub fn new(vocabulary: u32, parts: usize) -> Result<Self> {
        Ok(Self { vocabulary, table: RecordTable::new(parts)?, tokens: Vec::new() })
    }
}

impl Sink for RecordsInMemory {
    fn push(&mut self, record: &TokenizedDocument) -> Result<()> {
        self.table.push(record, self.vocabulary)?;
        record.parts.iter().for_each(|part| self.tokens.extend_from_slice(part));
        Ok(())
    }
}

impl Records for RecordsInMemory {
    fn count(&self) -> usize {
        self.table.count()
    }

    fn parts(&self) -> usize {
        self.table.parts
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    fn length(&self, record: usize, part: usize) -> usize {
        let span = self.table.span(record, part);
        (span.end - span.start) as usize
    }

    fn read(&self, record: usize, part: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        let range = self.table.part(record, part, &range)?;
        let tokens = self.tokens.get(range.start as usize..range.end as usize);
        out.extend_from_slice(
            tokens
                .ok_or_else(|| Error::new(ErrorKind::State, "records", "tokens are no longer available"))?,
        );
        Ok(())
    }

    fn label(&self, record: usize) -> Option<u32> {
        self.table.labels.get(record).copied()
    }

    fn fingerprint(&self) -> u64 {
        self.table.fingerprint
    }
}

/// Returns the indices of the records for which `takes` returns true, and of all others.
fn divide(records: &dyn Records, mut takes: impl FnMut(u64) -> bool) -> Result<[Vec<usize>; 2]> {
    let (mut numbers, mut tokens) = ([Vec::new(), Vec::new()], Vec::new());
    for record in 0..records.count() {
        let mut hash = u64::from(records.label(record).unwrap_or(u32::MAX));
        for part in 0..records.parts() {
            tokens.clear();
            records.read(record, part, 0..records.length(record, part), &mut tokens)?;
            hash = super::hash::tokens(hash, &tokens);
        }
        numbers[usize::from(!takes(hash))].push(record);
    }
    Ok(numbers)
}

/// A subset of other records.
#[derive(Clone, Debug)]
pub struct Subset<R> {
    inner: R,
    numbers: Vec<usize>,
}

impl<R: Records> Subset<R> {
    /// Selects the records for which `takes` returns true. It receives the hash of each record: that of a document of
    /// its tokens and its class.
    pub fn new(inner: R, takes: impl FnMut(u64) -> bool) -> Result<Self> {
        let [numbers, _] = divide(&inner, takes)?;
        Ok(Self { inner, numbers })
    }

    /// Like [`Self::new`], and also returns all other records.
    pub fn both(inner: R, takes: impl FnMut(u64) -> bool) -> Result<[Self; 2]>
    where
        R: Clone,
    {
        let numbers = divide(&inner, takes)?;
        Ok(numbers.map(|numbers| Self { inner: inner.clone(), numbers }))
    }

    fn number(&self, record: usize) -> usize {
        self.numbers.get(record).copied().unwrap_or(usize::MAX)
    }
}

impl<R: Records> Records for Subset<R> {
    fn count(&self) -> usize {
        self.numbers.len()
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }

    fn vocabulary(&self) -> u32 {
        self.inner.vocabulary()
    }

    fn length(&self, record: usize, part: usize) -> usize {
        self.inner.length(self.number(record), part)
    }

    fn read(&self, record: usize, part: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        self.inner.read(self.number(record), part, range, out)
    }

    fn label(&self, record: usize) -> Option<u32> {
        self.inner.label(self.number(record))
    }

    fn fingerprint(&self) -> u64 {
        let start = fold(self.inner.fingerprint(), self.numbers.len() as u64);
        self.numbers.iter().fold(start, |state, &number| fold(state, number as u64))
    }
}

impl<R: Records + ?Sized> Records for std::sync::Arc<R> {
    fn count(&self) -> usize {
        (**self).count()
    }

    fn parts(&self) -> usize {
        (**self).parts()
    }

    fn vocabulary(&self) -> u32 {
        (**self).vocabulary()
    }

    fn length(&self, record: usize, part: usize) -> usize {
        (**self).length(record, part)
    }

    fn read(&self, record: usize, part: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        (**self).read(record, part, range, out)
    }

    fn label(&self, record: usize) -> Option<u32> {
        (**self).label(record)
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
