//! Which documents are kept from training, to see what was learnt.

use siskin::Result;

use super::hash::mix;
use super::records::{Record, Sink};

/// Which side of a split something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Trained on.
    Training,
    /// Kept for validation.
    Validation,
}

/// A split by the hash of each document: where a document goes depends on nothing but itself and the seed. The same
/// document is on the same side wherever it stands, however often, and whatever stands beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The share of documents that is kept for validation, from 0 to 1.
    pub share: f64,
    /// Another seed is another split.
    pub seed: u64,
}

impl Split {
    /// The side of a document with this hash.
    pub fn side(&self, hash: u64) -> Side {
        let unit = (mix(hash ^ mix(self.seed)) >> 11) as f64 / (1_u64 << 53) as f64;
        if unit < self.share { Side::Validation } else { Side::Training }
    }
}

/// Gives each record to its side of a split.
pub struct Divider<'a> {
    /// Who goes where.
    pub split: Split,
    /// Takes what is trained on.
    pub training: &'a mut dyn Sink,
    /// Takes what is kept.
    pub validation: &'a mut dyn Sink,
}

impl Sink for Divider<'_> {
    fn push(&mut self, record: &Record) -> Result<()> {
        match self.split.side(record.hash) {
            Side::Training => self.training.push(record),
            Side::Validation => self.validation.push(record),
        }
    }
}
