//! The split of documents into training and validation.

use siskin_format::Result;

use super::hash::mix;
use super::records::{Sink, TokenizedDocument};

/// A side of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSide {
    /// Training.
    Training,
    /// Held out for validation.
    Validation,
}

/// A split by the hash of each document: the side of a document depends only on its content and the seed, not on its
/// place or on other documents, so that duplicates are on the same side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The fraction of documents that is held out for validation, from 0 to 1.
    pub validation_split: f64,
    /// The seed of the split.
    pub seed: u64,
}

impl Split {
    /// Returns the side of a document with this hash.
    pub fn side(&self, hash: u64) -> SplitSide {
        let unit = (mix(hash ^ mix(self.seed)) >> 11) as f64 / (1_u64 << 53) as f64;
        if unit < self.validation_split { SplitSide::Validation } else { SplitSide::Training }
    }
}

/// Passes each record to its side of a split.
pub struct Divider<'a> {
    /// The split.
    pub split: Split,
    /// Receives training records.
    pub training: &'a mut dyn Sink,
    /// Receives validation records.
    pub validation: &'a mut dyn Sink,
}

impl Sink for Divider<'_> {
    fn push(&mut self, record: &TokenizedDocument) -> Result<()> {
        match self.split.side(record.hash) {
            SplitSide::Training => self.training.push(record),
            SplitSide::Validation => self.validation.push(record),
        }
    }
}
