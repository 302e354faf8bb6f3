//! What was trained beside the matrices of a model that stayed as it is, and is added when the model opens.
//!
//! `y = W x` becomes `y = W x + factor · B A x`, and with lengths each row of `W + factor · B A` is brought to a length of
//! its own. Nothing of the base is written anew: it may be packed as anything. `docs/format.md` says how an adapter lies
//! in a file.

mod place;
mod section;
#[cfg(test)]
mod tests;

pub(crate) use place::Placed;

use std::io::{Seek, Write};
use std::path::Path;

use crate::file::{File, SectionKind};
use crate::graph::Op;
use crate::model::ModelOptions;
use crate::{Error, ErrorKind, Model, Result};

/// The most rows of a first small matrix.
pub(crate) const MOST_RANK: usize = 4096;

/// What stands beside one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterPart {
    /// The name of the matrix, such as `blk.0.attn_q.weight`.
    pub tensor: String,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// Rows of the first small matrix, columns of the second.
    pub rank: usize,
    /// Factor on what they give.
    pub factor: f32,
    /// The first small matrix, row by row: the rank × columns.
    pub first: Vec<f32>,
    /// The second, row by row: rows × the rank.
    pub second: Vec<f32>,
    /// The lengths that rows of the sum are brought to; empty: they stay as long as they are.
    pub lengths: Vec<f32>,
}

/// An adapter: parts, and what they belong to.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// The family of the base.
    pub architecture: String,
    /// [`File::digest`] of the base; `None` where nobody knows it.
    pub base: Option<[u8; 32]>,
    /// What stands beside which matrix.
    pub parts: Vec<AdapterPart>,
}

impl AdapterPart {
    /// Refuses numbers that do not belong together.
    fn check(&self) -> Result<()> {
        let place = || format!("adapter of {}", self.tensor);
        if !(1..=MOST_RANK).contains(&self.rank) {
            let message = format!("rank {}; it is from 1 to {MOST_RANK}", self.rank);
            return Err(Error::new(ErrorKind::Shape, place(), message));
        }
        let fits = self.columns.checked_mul(self.rank) == Some(self.first.len())
            && self.rows.checked_mul(self.rank) == Some(self.second.len())
            && (self.lengths.is_empty() || self.lengths.len() == self.rows)
            && self.rows > 0
            && self.columns > 0;
        if !fits {
            let message = format!(
                "its matrices have {} and {} numbers, its lengths {}; {} × {} at rank {} is not made so",
                self.first.len(),
                self.second.len(),
                self.lengths.len(),
                self.rows,
                self.columns,
                self.rank
            );
            return Err(Error::new(ErrorKind::Shape, place(), message));
        }
        let numbers = self.first.iter().chain(&self.second).chain(&self.lengths).chain([&self.factor]);
        match numbers.into_iter().all(|number| number.is_finite()) {
            true => Ok(()),
            false => Err(Error::corrupt(place(), "holds what is no number; train it again")),
        }
    }
}

impl Adapter {
    /// Opens an adapter that [`Adapter::write`] wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let place = path.as_ref().display().to_string();
        Self::from_file(&File::open(path)?).map_err(|error| error.within(&place))
    }

    /// The adapter in an open file.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] where the file holds none, [`ErrorKind::Corrupt`] and [`ErrorKind::Shape`] where it is
    /// not made as `docs/format.md` says.
    pub fn from_file(file: &File) -> Result<Self> {
        let bytes = file.checked_section(SectionKind::Adapter)?.ok_or_else(|| {
            let message = "the file holds no adapter; `siskin train` writes one with [export] adapter = true";
            Error::new(ErrorKind::Missing, "adapter", message)
        })?;
        section::read(&bytes, file)
    }

    /// Writes the adapter as a `.siskin` file to `out`, which must be empty, and gives it back.
    pub fn write<W: Write + Seek + Send>(
        &self,
        name: Option<&str>,
        provenance: serde_json::Map<String, serde_json::Value>,
        out: W,
    ) -> Result<W> {
        self.parts.iter().try_for_each(AdapterPart::check)?;
        section::write(self, name, provenance, out)
    }

    /// A hash over all that changes what a model computes.
    pub fn identity(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            let sizes = [part.tensor.len(), part.rows, part.columns, part.rank, part.lengths.len()];
            sizes.iter().for_each(|size| {
                hasher.update(&(*size as u64).to_le_bytes());
            });
            hasher.update(part.tensor.as_bytes()).update(&part.factor.to_le_bytes());
            for number in part.first.iter().chain(&part.second).chain(&part.lengths) {
                hasher.update(&number.to_le_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// Whether the adapter was trained beside the model in `file`.
    ///
    /// # Errors
    /// Where it was not. An adapter that does not name its base is taken for any that it fits.
    pub fn check_base(&self, file: &File) -> Result<()> {
        let architecture = &file.metadata().architecture;
        if *architecture != self.architecture {
            let message = format!("belongs to a model of {}, not of {architecture}", self.architecture);
            return Err(Error::argument("adapter.architecture", message));
        }
        match self.base {
            Some(base) if base != file.digest() => {
                let message = "was trained beside other weights than these; open it with its own base, or say that \
                               any will do";
                Err(Error::argument("adapter.base", message))
            }
            _ => Ok(()),
        }
    }
}

impl Model {
    /// Makes a model of an open file and an adapter, whatever weights it was trained beside; see
    /// [`Adapter::check_base`].
    ///
    /// # Errors
    /// Where a part fits no matrix of the model.
    pub fn with_adapter(file: File, adapter: &Adapter, options: &ModelOptions) -> Result<Self> {
        Self::made(file, Some(adapter), options)
    }
}

/// Whether an adapter can stand beside a weight in this operation.
fn takes(op: &Op, weight: usize) -> bool {
    matches!(op, Op::Linear { parts } if parts.len() == 1 && parts[0].0 == weight)
}
