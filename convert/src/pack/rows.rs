//! Rows of one tensor, read from the source and packed panel by panel.

use super::target::WeightTarget;
use crate::calibrate::{Gptq, OutputErrors};
use crate::import::SourceTensor;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::{ModelConfig, TensorTransform};
use siskin_graph::{Weight, WeightRole};
use siskin_kernels::panel;
use siskin_kernels::quant::BlockType;
use std::sync::Arc;

/// One tensor on its way from source to file.
pub(super) struct TensorRows<'a> {
    source: SourceTensor,
    model_config: &'a ModelConfig,
    rows: usize,
    columns: usize,
    target: WeightTarget,
}

/// Scratch buffers of a worker.
#[derive(Default)]
pub(super) struct PackScratch {
    raw: Vec<u8>,
    values: Vec<f32>,
    again: Vec<f32>,
    encoded: Vec<u8>,
}

/// The difference between re-encoded and source weights, as sums of squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Squares {
    pub(super) error: f64,
    pub(super) signal: f64,
    /// The same for the outputs over the calibration activations.
    pub(super) products: OutputErrors,
}

impl Squares {
    pub(super) fn add(&mut self, other: Self) {
        self.error += other.error;
        self.signal += other.signal;
        self.products.add(other.products);
    }
}

/// How re-encoded values are rounded.
pub(super) enum RoundingMethod {
    /// To nearest, all columns weighted alike.
    Nearest,
    /// With a weight for each column's squared error.
    Weighted(Vec<f32>),
    /// With GPTQ, minimizing the error of the outputs.
    Guided(Arc<Gptq>),
}

impl<'a> TensorRows<'a> {
    /// Checks the source's shape against the weight's.
    pub(super) fn new(source: SourceTensor, weight: &Weight, model_config: &'a ModelConfig) -> Result<Self> {
        let found = (source.rows, source.columns);
        let expected = match (weight.role, source.take) {
            (WeightRole::Matrix, TensorTransform::Transposed) => (weight.columns, weight.rows),
            (WeightRole::Matrix, TensorTransform::HalfOfHeads(_)) => {
                (weight.rows.saturating_mul(2), weight.columns)
            }
            _ => (weight.rows, weight.columns),
        };
        // Some sources store vectors as tables of one column, or with dimensions of size one.
        let same = match weight.role {
            // The kernel positions of a convolution are a dimension of their own.
            WeightRole::Matrix if matches!(source.take, TensorTransform::Neighbors(_)) => {
                found.0.checked_mul(found.1) == weight.rows.checked_mul(weight.columns)
            }
            // The source tensor holds other weights too.
            WeightRole::Matrix if matches!(source.take, TensorTransform::Chunk(_)) => {
                found.1 == weight.columns && found.0.is_multiple_of(weight.rows.max(1))
            }
            WeightRole::Matrix if matches!(source.take, TensorTransform::OfState(_)) => {
                found.1 == weight.columns
            }
            WeightRole::Matrix => match source.take {
                TensorTransform::Across { .. } => across_fits(&source, weight.rows),
                _ => found == expected,
            },
            WeightRole::Vector if matches!(source.take, TensorTransform::Chunk(_)) => {
                found.1 == weight.columns
            }
            WeightRole::Vector if matches!(source.take, TensorTransform::Across { .. }) => {
                across_fits(&source, weight.columns)
            }
            WeightRole::Vector => found.0.checked_mul(found.1) == Some(weight.columns),
        };
        if !same {
            let message =
                format!("{} x {} values, expected {} x {}", found.0, found.1, expected.0, expected.1);
            return Err(Error::new(ErrorKind::Shape, &source.name, message));
        }
        let row = source.block.row_bytes(source.columns);
        if row.and_then(|row| row.checked_mul(source.rows)) != Some(source.data.len()) {
            return Err(Error::corrupt(&source.name, "the length does not match the shape and type"));
        }
        check_take(&source, weight, model_config)?;
        let target = WeightTarget::Block(source.block);
        Ok(Self { source, model_config, rows: weight.rows, columns: weight.columns, target })
    }

    /// Returns the block type of the source.
    pub(super) fn source_type(&self) -> BlockType {
        self.source.block
    }

    /// Returns true if the values are re-encoded.
    pub(super) fn is_encoded(&self) -> bool {
        self.target != WeightTarget::Block(self.source.block)
    }

    /// Returns the weight type that the panels will hold.
    pub(super) fn target(&self) -> WeightTarget {
        self.target
    }

    /// Re-encodes to `target`, which must have an encoder and fit the columns.
    pub(super) fn encode_as(&mut self, target: WeightTarget) {
        self.target = target;
    }

    /// Returns the values of a vector.
    pub(super) fn floats(&self) -> Result<Vec<f32>> {
        if let TensorTransform::Chunk(chunk) | TensorTransform::Across { chunk, .. } = self.source.take {
            return self.floats_of(chunk.into()).ok_or_else(|| self.broken());
        }
        let mut stored = vec![0.0; self.columns];
        let decoded = match self.source.block.row_bytes(self.source.columns) {
            Some(row) if row > 0 => self
                .source
                .data
                .chunks_exact(row)
                .zip(stored.chunks_exact_mut(self.source.columns))
                .all(|(row, values)| self.source.block.dequantize_row(row, values)),
            _ => false,
        };
        if !decoded {
            return Err(self.broken());
        }
        Ok(match self.source.take {
            TensorTransform::Whole | TensorTransform::Transposed | TensorTransform::Neighbors(_) => stored,
            TensorTransform::PlusOne => stored.into_iter().map(|value| value + 1.0).collect(),
            take => (0..self.columns)
                .map(|row| stored.get(take.source_row(row, self.columns, self.model_config)).copied())
                .collect::<Option<_>>()
                .ok_or_else(|| self.broken())?,
        })
    }

    /// Returns the values of a vector that is row `chunk` of its source, or some of its columns.
    fn floats_of(&self, chunk: usize) -> Option<Vec<f32>> {
        let row = self.source.block.row_bytes(self.source.columns)?;
        let data = self.source.data.get(chunk.checked_mul(row)?..)?.get(..row)?;
        let mut stored = vec![0.0; self.source.columns];
        if !self.source.block.dequantize_row(data, &mut stored) {
            return None;
        }
        Some(match self.source.take {
            TensorTransform::Across { of, part, .. } => {
                stored.into_iter().skip(part.into()).step_by(of.max(1).into()).collect()
            }
            _ => stored,
        })
    }

    /// Packs panel `index` into `out`, which has exactly the panel's size.
    pub(super) fn pack(
        &self,
        index: usize,
        out: &mut [u8],
        rounding: &RoundingMethod,
        scratch: &mut PackScratch,
    ) -> Result<Squares> {
        let first = index * panel::ROWS;
        let count = self.rows.saturating_sub(first).min(panel::ROWS);
        let PackScratch { raw, values, again, encoded } = scratch;
        let rows = match self.source.take {
            TensorTransform::Transposed => self.transposed(first, count, raw),
            TensorTransform::Neighbors(neighbors) => self.regrouped(neighbors.into(), first, count, raw),
            TensorTransform::Across { chunk, of, part } => {
                self.across([chunk, of, part].map(usize::from), first, count, raw)
            }
            _ => self.stored(first, count),
        };
        let rows = rows.ok_or_else(|| self.broken())?;
        if !self.is_encoded() {
            return match self.target.pack(&rows, self.columns, out) {
                true => Ok(Squares::default()),
                false => Err(self.broken()),
            };
        }
        let size = self.target.row_bytes(self.columns).ok_or_else(|| self.broken())?;
        encoded.clear();
        encoded.resize(size * count, 0);
        let mut squares = Squares::default();
        for (row, encoded) in rows.iter().zip(encoded.chunks_exact_mut(size)) {
            values.clear();
            values.resize(self.columns, 0.0);
            let decoded = self.source.block.dequantize_row(row, values);
            if !values.iter().all(|value| value.is_finite()) {
                let message =
                    "contains NaN or infinity, which cannot be re-encoded; convert without re-encoding";
                return Err(Error::corrupt(&self.source.name, message));
            }
            // A rotation preserves the sums of squared errors.
            self.target.prepare(values);
            again.resize(values.len(), 0.0);
            let products = self.encode(values, rounding, encoded).filter(|_| decoded);
            let done = self.target.decode(encoded, again);
            squares.products.add(products.filter(|_| done).ok_or_else(|| self.broken())?);
            for (&value, &again) in values.iter().zip(&*again) {
                squares.error += f64::from(value - again).powi(2);
                squares.signal += f64::from(value).powi(2);
            }
        }
        let rows: Vec<&[u8]> = encoded.chunks_exact(size).collect();
        match self.target.pack(&rows, self.columns, out) {
            true => Ok(squares),
            false => Err(self.broken()),
        }
    }

    /// Encodes a prepared row.
    fn encode(&self, row: &[f32], rounding: &RoundingMethod, out: &mut [u8]) -> Option<OutputErrors> {
        let weights = match (rounding, self.target) {
            (RoundingMethod::Guided(guide), WeightTarget::Row(ty)) => return guide.encode(ty, row, out),
            (RoundingMethod::Weighted(weights), _) => Some(&weights[..]),
            _ => None,
        };
        self.target.encode(row, weights, out).then(OutputErrors::default)
    }

    /// Returns the rows as they are stored in the source.
    fn stored(&self, first: usize, count: usize) -> Option<Vec<&[u8]>> {
        let size = self.source.block.row_bytes(self.columns)?;
        let row = |row| {
            let start = self.source.take.source_row(row, self.rows, self.model_config).checked_mul(size)?;
            self.source.data.get(start..start.checked_add(size)?)
        };
        (first..first + count).map(row).collect()
    }

    /// Returns the rows, gathered from the source's columns.
    fn transposed<'b>(&self, first: usize, count: usize, raw: &'b mut Vec<u8>) -> Option<Vec<&'b [u8]>> {
        let size = self.source.block.codec().bytes;
        raw.clear();
        raw.resize(count * self.columns * size, 0);
        for (column, stored) in self.source.data.chunks_exact(self.rows * size).enumerate() {
            let stored = stored.get(first * size..(first + count) * size)?;
            for (row, number) in stored.chunks_exact(size).enumerate() {
                let at = (row * self.columns + column) * size;
                raw.get_mut(at..at + size)?.copy_from_slice(number);
            }
        }
        Some(raw.chunks_exact(self.columns * size).collect())
    }

    /// Returns the rows, gathered from some of the columns of tensor `chunk` of the source.
    fn across<'b>(
        &self,
        [chunk, of, part]: [usize; 3],
        first: usize,
        count: usize,
        raw: &'b mut Vec<u8>,
    ) -> Option<Vec<&'b [u8]>> {
        let size = self.source.block.codec().bytes;
        let line = self.source.columns.checked_mul(size)?;
        let start = chunk.checked_mul(self.columns)?.checked_mul(line)?;
        let stored = self.source.data.get(start..)?.get(..self.columns.checked_mul(line)?)?;
        raw.clear();
        raw.resize(count * self.columns * size, 0);
        for (column, stored) in stored.chunks_exact(line).enumerate() {
            for row in 0..count {
                let from = ((first + row) * of + part) * size;
                let at = (row * self.columns + column) * size;
                raw.get_mut(at..at + size)?.copy_from_slice(stored.get(from..from + size)?);
            }
        }
        Some(raw.chunks_exact(self.columns * size).collect())
    }

    /// Returns the rows with the values of one kernel position after the other.
    fn regrouped<'b>(
        &self,
        neighbors: usize,
        first: usize,
        count: usize,
        raw: &'b mut Vec<u8>,
    ) -> Option<Vec<&'b [u8]>> {
        let (size, row_bytes) = (self.source.block.codec().bytes, self.source.block.row_bytes(self.columns)?);
        let width = self.columns / neighbors;
        raw.clear();
        raw.resize(count * row_bytes, 0);
        let stored = self.source.data.get(first * row_bytes..(first + count) * row_bytes)?;
        for (stored, raw) in stored.chunks_exact(row_bytes).zip(raw.chunks_exact_mut(row_bytes)) {
            for (index, number) in stored.chunks_exact(size).enumerate() {
                let at = (index % neighbors * width + index / neighbors) * size;
                raw.get_mut(at..at + size)?.copy_from_slice(number);
            }
        }
        Some(raw.chunks_exact(row_bytes).collect())
    }

    fn broken(&self) -> Error {
        Error::corrupt(&self.source.name, "cannot read rows of the source")
    }
}

/// Checks that the tensor transform fits the tensor.
fn check_take(source: &SourceTensor, weight: &Weight, model_config: &ModelConfig) -> Result<()> {
    let float = source.block.codec().elements == 1;
    let rows = if weight.role == WeightRole::Matrix { weight.rows } else { weight.columns };
    let possible = match source.take {
        TensorTransform::Whole => true,
        TensorTransform::Transposed => float || weight.role == WeightRole::Vector,
        TensorTransform::PlusOne => weight.role == WeightRole::Vector,
        TensorTransform::Stacked { .. } | TensorTransform::StackedAcross { .. } => false,
        TensorTransform::Chunk(chunk) => {
            let rows = if weight.role == WeightRole::Matrix { rows } else { 1 };
            (usize::from(chunk) + 1).checked_mul(rows).is_some_and(|end| end <= source.rows)
        }
        TensorTransform::Across { chunk, of, part } => {
            let rows = if weight.role == WeightRole::Matrix { weight.columns } else { 1 };
            let end = (usize::from(chunk) + 1).checked_mul(rows);
            float && part < of && end.is_some_and(|end| end <= source.rows)
        }
        TensorTransform::HalfOfHeads(half) => {
            weight.role == WeightRole::Matrix && half < 2 && rows.is_multiple_of(model_config.head_size)
        }
        TensorTransform::OfState(_) => {
            let last = source.take.source_row(rows.saturating_sub(1), rows, model_config);
            weight.role == WeightRole::Matrix && last < source.rows
        }
        TensorTransform::Neighbors(count) => {
            weight.role == WeightRole::Vector
                || float && count > 0 && weight.columns.is_multiple_of(count.into())
        }
        TensorTransform::RotatedPairs => rows.is_multiple_of(model_config.head_size),
        TensorTransform::GroupedQkv => rows == model_config.query_columns() + 2 * model_config.kv_columns(),
    };
    match possible {
        true => Ok(()),
        false => Err(Error::unsupported(
            &source.name,
            format!("the transform {:?} does not support the shape and type of this tensor", source.take),
        )),
    }
}

/// Returns true if a vector is a strided selection of the columns of a source row.
fn across_fits(source: &SourceTensor, columns: usize) -> bool {
    match source.take {
        TensorTransform::Across { of, .. } => Some(source.columns) == columns.checked_mul(of.into()),
        _ => false,
    }
}
