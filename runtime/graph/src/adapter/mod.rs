//! Adapters (LoRA, arXiv:2106.09685; DoRA, arXiv:2402.09353), which were trained beside frozen weights. A model is opened
//! with one that always applies, or with several of which each sequence of a batch chooses one.
//!
//! `y = W x` becomes `y = W x + factor · B A x`; with DoRA each row of `W + factor · B A` is scaled to a trained norm.
//! The base weights are not rewritten, so they may be quantized to any type. `docs/format.md` describes how an adapter
//! is stored in a file.

mod apply;
mod part_weights;
mod per_row;
mod section;
#[cfg(test)]
mod tests;

pub use apply::{AdapterTensors, BoundWeight};

use std::io::{Seek, Write};
use std::path::Path;

use crate::op::{Linear, Op};
use siskin_format::file::{File, SectionKind};
use siskin_format::{Error, ErrorKind, Result};

/// The maximum rank.
pub const MAX_RANK: usize = 4096;
/// The maximum number of adapters that requests can choose from.
pub const MAX_ADAPTERS: usize = 1024;

/// The adapter of one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraMatrix {
    /// The name of the matrix, such as `blk.0.attn_q.weight`.
    pub tensor: String,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub columns: usize,
    /// The rank: rows of A, columns of B.
    pub rank: usize,
    /// Factor on B A x (LoRA's alpha / rank).
    pub scale: f32,
    /// A in row-major order: rank × columns.
    pub a: Vec<f32>,
    /// B in row-major order: rows × rank.
    pub b: Vec<f32>,
    /// DoRA: the magnitude (L2 norm) of each row of the sum; empty: no scaling.
    pub magnitudes: Vec<f32>,
}

/// An adapter and the base model it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// The family of the base model.
    pub architecture: String,
    /// [`File::digest`] of the base model; `None` if unknown.
    pub base: Option<[u8; 32]>,
    /// The adapted matrices.
    pub parts: Vec<LoraMatrix>,
}

/// An adapter that requests choose by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedAdapter {
    /// The name.
    pub name: String,
    /// The adapter.
    pub adapter: Adapter,
}

impl LoraMatrix {
    /// Returns the location of errors.
    fn place(&self) -> String {
        format!("adapter of {}", self.tensor)
    }

    /// Validates the sizes and values of a part.
    fn check(&self) -> Result<()> {
        let place = || self.place();
        if !(1..=MAX_RANK).contains(&self.rank) {
            let message = format!("rank {}; expected 1 to {MAX_RANK}", self.rank);
            return Err(Error::new(ErrorKind::Shape, place(), message));
        }
        let fits = self.columns.checked_mul(self.rank) == Some(self.a.len())
            && self.rows.checked_mul(self.rank) == Some(self.b.len())
            && (self.magnitudes.is_empty() || self.magnitudes.len() == self.rows)
            && self.rows > 0
            && self.columns > 0;
        if !fits {
            let message = format!(
                "its matrices have {} and {} values and its row norms {}, which does not match {} × {} at \
                 rank {}",
                self.a.len(),
                self.b.len(),
                self.magnitudes.len(),
                self.rows,
                self.columns,
                self.rank
            );
            return Err(Error::new(ErrorKind::Shape, place(), message));
        }
        let numbers = self.a.iter().chain(&self.b).chain(&self.magnitudes).chain([&self.scale]);
        match numbers.into_iter().all(|number| number.is_finite()) {
            true => Ok(()),
            false => Err(Error::corrupt(place(), "contains NaN or infinity; retrain the adapter")),
        }
    }
}

impl Adapter {
    /// Opens an adapter that [`Adapter::write`] wrote.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let place = path.as_ref().display().to_string();
        Self::from_file(&File::open(path)?).map_err(|error| error.within(&place))
    }

    /// Reads the adapter of an open file.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if the file has none, [`ErrorKind::Corrupt`] and [`ErrorKind::Shape`] if it does not
    /// conform to `docs/format.md`.
    pub fn from_file(file: &File) -> Result<Self> {
        let bytes = file.checked_section(SectionKind::Adapter)?.ok_or_else(|| {
            let message = "the file holds no adapter; `siskin train` writes one with [export] adapter = true";
            Error::new(ErrorKind::Missing, "adapter", message)
        })?;
        section::read(&bytes, file)
    }

    /// Writes the adapter as a `.siskin` file to `out`, which must be empty, and returns `out`.
    pub fn write<W: Write + Seek + Send>(
        &self,
        name: Option<&str>,
        provenance: serde_json::Map<String, serde_json::Value>,
        out: W,
    ) -> Result<W> {
        self.parts.iter().try_for_each(LoraMatrix::check)?;
        section::write(self, name, provenance, out)
    }

    /// Returns a hash of everything that changes what a model computes.
    pub fn identity(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for part in &self.parts {
            let sizes = [part.tensor.len(), part.rows, part.columns, part.rank, part.magnitudes.len()];
            sizes.iter().for_each(|size| {
                hasher.update(&(*size as u64).to_le_bytes());
            });
            hasher.update(part.tensor.as_bytes()).update(&part.scale.to_le_bytes());
            for number in part.a.iter().chain(&part.b).chain(&part.magnitudes) {
                hasher.update(&number.to_le_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// Checks that the adapter was trained on the model in `file`.
    ///
    /// # Errors
    /// Fails if it was not. An adapter without a base digest is accepted for any model of its family.
    pub fn check_base(&self, file: &File) -> Result<()> {
        let architecture = &file.metadata().architecture;
        if *architecture != self.architecture {
            let message = format!("made for the family {}, not for {architecture}", self.architecture);
            return Err(Error::argument("adapter.architecture", message));
        }
        match self.base {
            Some(base) if base != file.digest() => {
                let message = "trained on different weights; open it with its own base, or allow any base";
                Err(Error::argument("adapter.base", message))
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a weight can have an adapter in this operation.
fn takes(op: &Op, weight: usize) -> bool {
    matches!(op, Op::Linear(Linear { parts }) if parts.len() == 1 && parts[0].0 == weight)
}
