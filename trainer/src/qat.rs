//! Quantization-aware training (QAT): each step computes with weights rounded as a file will hold them, and gradients
//! pass straight through the rounding (straight-through estimator, arXiv:1308.3432).
//!
//! Weights are rounded by the codecs that pack files, so that the exported model computes with the very weights of
//! the last step.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};
use siskin_graph::WeightRole;
use siskin_kernels::hadamard;
use siskin_kernels::panel::{self, PanelType, ROWS};
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;

use crate::parameters::{ForwardWeights, Parameters};
use crate::program::Program;
use crate::real::Real;
use crate::settings::{fits, unknown};

/// Embedding tables, LM heads and routers: not rounded unless named.
const UNQUANTIZED: &[&str] = &["token_embd", "position_embd", "token_types", "output", "ffn_gate_inp"];

/// Which matrices are rounded, and to which type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QatOptions {
    /// The weight type: `W4i`, `W8r`, or a GGUF type such as `Q4_0`.
    pub weight_type: String,
    /// The matrices: names in which `*` matches any characters. Empty: all but embedding tables, heads and routers.
    pub tensors: Vec<String>,
}

/// A weight type that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// A GGUF block type.
    Block(BlockType),
    /// A row type: one scale per row, rotated.
    Row(RowType),
}

impl WeightType {
    fn all() -> impl Iterator<Item = Self> {
        let blocks = BlockType::ALL.iter().copied().filter(|block| block.codec().can_quantize());
        blocks.map(Self::Block).chain(RowType::ALL.iter().copied().map(Self::Row))
    }

    /// Returns the type of this name.
    pub fn named(name: &str) -> Result<Self> {
        let known: Vec<&str> = Self::all().map(Self::name).collect();
        Self::all()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| unknown("qat.weight_type", "weight type", name, &known))
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Block(block) => block.name(),
            Self::Row(row) => row.name(),
        }
    }

    /// Returns its panel type.
    pub fn panel(self) -> PanelType {
        match self {
            Self::Block(block) => PanelType::for_block(block),
            Self::Row(row) => row.panel(),
        }
    }

    fn row_bytes(self, columns: usize) -> Option<usize> {
        match self {
            Self::Block(block) => block.row_bytes(columns),
            Self::Row(row) => row.row_bytes(columns),
        }
    }

    /// Packs up to [`ROWS`] rows into `panel`. Returns false if the type does not support this number of columns.
    pub fn pack(self, numbers: &[f32], columns: usize, panel: &mut [u8]) -> bool {
        let Some(size) = self.row_bytes(columns) else { return false };
        let encode = |row: &[f32]| -> Option<Vec<u8>> {
            let mut bytes = vec![0; size];
            let done = match self {
                Self::Block(block) => block.quantize_row(row, None, &mut bytes),
                Self::Row(kind) => {
                    let mut row = row.to_vec();
                    row.resize(columns.next_multiple_of(hadamard::BLOCK), 0.0);
                    hadamard::rotate(&mut row);
                    kind.encode(&row, None, &mut bytes)
                }
            };
            done.then_some(bytes)
        };
        let rows: Option<Vec<Vec<u8>>> = numbers.chunks(columns.max(1)).map(encode).collect();
        let Some(rows) = rows else { return false };
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        panel.fill(0);
        match self {
            Self::Block(block) => panel::pack(block, &rows, columns, panel),
            Self::Row(kind) => panel::pack_rows(kind, &rows, columns, panel),
        }
    }
}

/// Which tensors of a program are rounded.
#[derive(Clone, Debug)]
pub struct QuantizationAware {
    kind: WeightType,
    weights: Vec<usize>,
}

impl QuantizationAware {
    /// Chooses tensors.
    ///
    /// # Errors
    /// If the type is unknown or does not fit a chosen matrix.
    pub fn new(options: &QatOptions, program: &Program) -> Result<Self> {
        let kind = WeightType::named(&options.weight_type)?;
        let takes = program.takes_packed();
        let wanted = |name: &str| match &options.tensors[..] {
            [] => !UNQUANTIZED.contains(&name.rsplit('.').nth(1).unwrap_or_default()),
            patterns => patterns.iter().any(|pattern| fits(pattern, name)),
        };
        let mut chosen = Vec::new();
        for (number, weight) in program.graph.weights.iter().enumerate() {
            if weight.role != WeightRole::Matrix || !takes[number] || !wanted(&weight.name) {
                continue;
            }
            if kind.row_bytes(weight.columns).is_none() {
                let message = format!(
                    "{} has {} columns, which is not a multiple of the block size of {}; exclude it with \
                     qat.tensors, or choose another type",
                    weight.name,
                    weight.columns,
                    kind.name()
                );
                return Err(Error::argument("qat.weight_type", message));
            }
            chosen.push(number);
        }
        match chosen.is_empty() {
            false => Ok(Self { kind, weights: chosen }),
            true => {
                let message = "match no matrix; `siskin inspect` lists the names";
                Err(Error::argument("qat.tensors", message))
            }
        }
    }

    /// Rounds again, after weights have changed.
    pub fn round_weights<T: Real>(&self, parameters: &mut Parameters<T>) {
        for &number in &self.weights {
            let parameter = &mut parameters.list[number];
            if !parameter.numbers.is_empty() {
                let numbers = self.rounded(&parameter.numbers, parameter.columns);
                parameter.forward = ForwardWeights::Rounded { kind: self.kind, numbers };
            }
        }
    }

    /// Returns the indices of the rounded tensors.
    pub(crate) fn weights(&self) -> &[usize] {
        &self.weights
    }

    /// Returns rows of `columns` values, rounded.
    pub(crate) fn rounded<T: Real>(&self, numbers: &[T], columns: usize) -> Vec<T> {
        round(numbers, columns.max(1), self.kind)
    }
}

/// Rounds values as their panels represent them.
fn round<T: Real>(numbers: &[T], columns: usize, kind: WeightType) -> Vec<T> {
    let size = kind.panel().panel_bytes(columns).unwrap_or(0);
    let mut rounded = vec![T::ZERO; numbers.len()];
    let panels = rounded.par_chunks_mut(ROWS * columns).zip(numbers.par_chunks(ROWS * columns));
    panels.for_each(|(rounded, numbers)| {
        let numbers: Vec<f32> = numbers.iter().map(|x| x.f64() as f32).collect();
        let mut panel = vec![0; size];
        kind.pack(&numbers, columns, &mut panel);
        let mut row = vec![0.0; columns];
        for (lane, out) in rounded.chunks_mut(columns).enumerate() {
            panel::row_values(kind.panel(), &panel, lane, columns, &mut row);
            out.iter_mut().zip(&row).for_each(|(out, x)| *out = T::of(f64::from(*x)));
        }
    });
    rounded
}
