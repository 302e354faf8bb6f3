//! Weight types: a GGUF block type, or a row type.

use siskin_kernels::hadamard;
use siskin_kernels::panel::{self, PanelType};
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;
use std::fmt;

/// A weight type of stored matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightTarget {
    /// A GGUF block type.
    Block(BlockType),
    /// A row type: one scale per row, Hadamard-rotated.
    Row(RowType),
}

impl WeightTarget {
    /// Iterates over all types that can be written.
    pub fn all() -> impl Iterator<Item = Self> {
        let blocks = BlockType::ALL.iter().copied().filter(|block| block.codec().can_quantize());
        blocks.map(Self::Block).chain(RowType::ALL.iter().copied().map(Self::Row))
    }

    /// Returns the name, as used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block(block) => block.name(),
            Self::Row(ty) => ty.name(),
        }
    }

    /// Returns the writable type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|target| target.name().eq_ignore_ascii_case(name))
    }

    /// Returns the bits per weight in rows of `columns`, without padding.
    pub fn bits(self, columns: usize) -> f64 {
        match self {
            Self::Block(block) => 8.0 * block.codec().bytes as f64 / block.codec().elements as f64,
            Self::Row(ty) => {
                let bytes = ty.panel().panel_bytes(columns).unwrap_or(usize::MAX);
                8.0 * bytes as f64 / (panel::ROWS * columns.max(1)) as f64
            }
        }
    }

    /// Returns the panel type that holds it.
    pub fn panel(self) -> PanelType {
        match self {
            Self::Block(block) => PanelType::for_block(block),
            Self::Row(ty) => ty.panel(),
        }
    }

    /// Returns the bytes of an encoded row, or `None` if the columns are not whole blocks.
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        match self {
            Self::Block(block) => block.row_bytes(columns),
            Self::Row(ty) => ty.row_bytes(columns),
        }
    }

    /// Pads and rotates a row if the type requires it.
    pub fn prepare(self, row: &mut Vec<f32>) {
        if let Self::Row(_) = self {
            row.resize(row.len().next_multiple_of(hadamard::BLOCK), 0.0);
            hadamard::rotate(row);
        }
    }

    /// Encodes a prepared row. Returns false if a length is wrong.
    pub fn encode(self, row: &[f32], weights: Option<&[f32]>, out: &mut [u8]) -> bool {
        match self {
            Self::Block(block) => block.quantize_row(row, weights, out),
            Self::Row(ty) => ty.encode(row, weights, out),
        }
    }

    /// Decodes a row to its prepared form.
    pub fn decode(self, encoded: &[u8], row: &mut [f32]) -> bool {
        match self {
            Self::Block(block) => block.dequantize_row(encoded, row),
            Self::Row(ty) => ty.decode(encoded, row),
        }
    }

    /// Packs encoded rows into a panel. Returns false if a length is wrong.
    pub fn pack(self, rows: &[&[u8]], columns: usize, out: &mut [u8]) -> bool {
        match self {
            Self::Block(block) => panel::pack(block, rows, columns, out),
            Self::Row(ty) => panel::pack_rows(ty, rows, columns, out),
        }
    }
}

impl fmt::Display for WeightTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_ascii_lowercase())
    }
}
