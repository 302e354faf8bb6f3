//! Concatenated records of several sources.

use std::ops::Range;
use std::sync::Arc;

use siskin_format::{Error, Result};

use super::hash::fold;
use super::records::{Records, RecordsInMemory, Sink, TokenizedDocument};

/// Concatenates records in order: pushed ones are kept in memory, those of other sources are referenced.
pub struct RecordList {
    vocabulary: u32,
    parts: usize,
    /// Those pushed after the last referenced source.
    own: RecordsInMemory,
    lists: Vec<Arc<dyn Records>>,
}

impl RecordList {
    /// Creates an empty list of records with `parts` token lists each and ids below `vocabulary`.
    pub fn new(vocabulary: u32, parts: usize) -> Result<Self> {
        Ok(Self { vocabulary, parts, own: RecordsInMemory::new(vocabulary, parts)?, lists: Vec::new() })
    }

    /// Appends all records of another source, whose ids must lie below the vocabulary, too.
    pub fn add(&mut self, records: Arc<dyn Records>) -> Result<()> {
        if records.parts() != self.parts || records.vocabulary() > self.vocabulary {
            let message = format!(
                "{} token lists and a vocabulary of {}, but the others have {} and {}",
                records.parts(),
                records.vocabulary(),
                self.parts,
                self.vocabulary
            );
            return Err(Error::argument("records", message));
        }
        self.close()?;
        self.lists.push(records);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if self.own.count() > 0 {
            let own = std::mem::replace(&mut self.own, RecordsInMemory::new(self.vocabulary, self.parts)?);
            self.lists.push(Arc::new(own));
        }
        Ok(())
    }

    /// Returns all gathered records.
    pub fn finish(mut self) -> Result<Arc<dyn Records>> {
        self.close()?;
        let mut end = 0;
        let mut up_to = |list: &Arc<dyn Records>| {
            end += list.count();
            end
        };
        let ends = self.lists.iter().map(&mut up_to).collect();
        let Self { vocabulary, parts, lists, .. } = self;
        Ok(Arc::new(ConcatenatedRecords { vocabulary, parts, lists, ends }))
    }
}

impl Sink for RecordList {
    fn push(&mut self, record: &TokenizedDocument) -> Result<()> {
        self.own.push(record)
    }
}

/// Concatenated lists of records.
struct ConcatenatedRecords {
    vocabulary: u32,
    parts: usize,
    lists: Vec<Arc<dyn Records>>,
    /// The cumulative number of records up to and including each list.
    ends: Vec<usize>,
}

impl ConcatenatedRecords {
    /// Returns the list that a record is in, and its index there.
    fn place(&self, record: usize) -> Option<(&dyn Records, usize)> {
        let list = self.ends.partition_point(|&end| end <= record);
        let first = list.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some((&**self.lists.get(list)?, record - first))
    }
}

impl Records for ConcatenatedRecords {
    fn count(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn parts(&self) -> usize {
        self.parts
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    fn length(&self, record: usize, part: usize) -> usize {
        self.place(record).map_or(0, |(list, record)| list.length(record, part))
    }

    fn read(&self, record: usize, part: usize, range: Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        let (list, own) = self.place(record).ok_or_else(|| {
            Error::argument(format!("record {record}"), format!("there are {} records", self.count()))
        })?;
        list.read(own, part, range, out)
    }

    fn label(&self, record: usize) -> Option<u32> {
        self.place(record).and_then(|(list, record)| list.label(record))
    }

    fn fingerprint(&self) -> u64 {
        match &*self.lists {
            [list] => list.fingerprint(),
            lists => lists.iter().fold(0, |state, list| fold(state, list.fingerprint())),
        }
    }
}
