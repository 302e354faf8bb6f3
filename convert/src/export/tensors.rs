//! The tensors of a model under the names and in the order of another format.

use super::Dtype;
use super::model::ExportModel;
use crate::import::names;
use crate::progress::ProgressSink;
use crate::rows;
use rayon::prelude::*;
use siskin_format::file::{StorageRole, Tensor};
use siskin_format::{Error, Result};
use siskin_graph::Weight;
use siskin_graph::arch::{ModelConfig, TensorRule, TensorTransform};
use siskin_graph::op::CausalConv1d;
use siskin_kernels::quant::BlockType;
use std::collections::{HashMap, HashSet};

/// Bytes in memory at a time.
const CHUNK: usize = 4 << 20;

/// A tensor of the written file: one tensor of the model, or several concatenated.
pub(super) struct Entry<'a> {
    /// The name in the file.
    pub(super) name: String,
    /// The shape in the file, slowest-varying dimension first.
    pub(super) shape: Vec<usize>,
    /// The model's tensors, each with the transform that importing applies to it.
    pub(super) parts: Vec<ModelTensor<'a>>,
    model_config: &'a ModelConfig,
    /// The kernel size, if it is a causal conv1d.
    pub(super) kernel: Option<usize>,
}

/// One tensor of the model.
pub(super) struct ModelTensor<'a> {
    /// The tensor.
    pub(super) tensor: &'a Tensor,
    /// The transform that importing applies to it.
    pub(super) take: TensorTransform,
}

/// Returns the tensors of `model` under the names that `rules` give them. `unnamed` handles tensors without a rule.
pub(super) fn entries<'a>(
    model: &'a ExportModel<'a>,
    rules: &[&[TensorRule]],
    unnamed: impl Fn(&Weight) -> Result<String>,
) -> Result<Vec<Entry<'a>>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut known = HashSet::new();
    for weight in model.graphs.weights().into_iter().filter(|weight| known.insert(&weight.name)) {
        let (name, take) = match names::apply(rules, &asked(model, rules, weight)) {
            Some(found) => found,
            None => (unnamed(weight)?, TensorTransform::Whole),
        };
        if matches!(
            take,
            TensorTransform::Across { .. } | TensorTransform::HalfOfHeads(_) | TensorTransform::OfState(_)
        ) {
            let message = format!("interleaved with others in {name}, which cannot be exported");
            return Err(Error::unsupported(&weight.name, message));
        }
        let tensor = model.tensor(weight)?;
        let part = ModelTensor { tensor, take };
        match (places.get(&name), take) {
            (Some(&at), TensorTransform::Chunk(_)) => entries[at].parts.push(part),
            (Some(_), _) => {
                return Err(Error::unsupported(&weight.name, format!("two tensors would be named {name}")));
            }
            (None, _) => {
                places.insert(name.clone(), entries.len());
                let kernel = kernel_size(model, weight);
                entries.push(Entry {
                    name,
                    shape: Vec::new(),
                    parts: vec![part],
                    model_config: &model.model_config,
                    kernel,
                });
            }
        }
    }
    for entry in &mut entries {
        entry.finish()?;
    }
    Ok(entries)
}

/// Returns the name by which rules know a weight: GGUF calls the only matrix before the activation by the name of the
/// second, and some rules have another for it.
fn asked(model: &ExportModel<'_>, rules: &[&[TensorRule]], weight: &Weight) -> String {
    let single = weight.name.strip_suffix("ffn_up.weight").and_then(|stem| {
        let is_single = model.file.tensor(&format!("{stem}ffn_gate.weight")).is_none();
        let name = format!("{stem}ffn_single.weight");
        (is_single && names::apply(rules, &name).is_some()).then_some(name)
    });
    single.unwrap_or_else(|| weight.name.clone())
}

/// Returns the kernel size of a weight that is a causal conv1d.
fn kernel_size(model: &ExportModel<'_>, weight: &Weight) -> Option<usize> {
    model.graphs.iter().find_map(|graph| {
        let mut convolutions = graph.nodes.iter().filter_map(|node| node.op.downcast_ref::<CausalConv1d>());
        let convolution = convolutions.find(|one| graph.weights.get(one.weight) == Some(weight))?;
        Some(convolution.taps)
    })
}

impl<'a> Entry<'a> {
    fn finish(&mut self) -> Result<()> {
        let chunk = |part: &ModelTensor<'_>| {
            if let TensorTransform::Chunk(chunk) = part.take { chunk.into() } else { 0_usize }
        };
        self.parts.sort_by_key(chunk);
        if self.parts.iter().enumerate().any(|(index, part)| self.parts.len() > 1 && chunk(part) != index) {
            return Err(Error::unsupported(&self.name, "some of its parts are missing"));
        }
        let Some(ModelTensor { tensor, take }) = self.parts.first() else { return Ok(()) };
        let (rows, columns) = (tensor.rows, tensor.columns);
        self.shape = match (tensor.role, take) {
            (StorageRole::Vector, _) if tensor.name.ends_with("attn_rel_b.weight") => {
                let heads = self.model_config.heads.max(1);
                vec![columns / heads, heads]
            }
            (StorageRole::Vector, _) if tensor.name.ends_with("_mix.weight") => {
                let sums = self.model_config.projected_positions.max(1);
                vec![sums, columns / sums]
            }
            (StorageRole::Vector, _) if self.name == "final_logits_bias" => vec![1, columns],
            (StorageRole::Vector, _) if self.kernel.is_some() => {
                let taps = self.kernel.unwrap_or_default().max(1);
                vec![columns / taps, 1, taps]
            }
            (StorageRole::Vector, TensorTransform::Chunk(_)) if is_numbered(tensor) => {
                vec![self.parts.len(), columns]
            }
            (StorageRole::Vector, _) => vec![self.parts.len() * columns],
            (StorageRole::Matrix, TensorTransform::Transposed) => vec![columns, rows],
            (StorageRole::Matrix, TensorTransform::Neighbors(count)) => {
                let count = usize::from(*count);
                vec![rows, columns / count, count]
            }
            (StorageRole::Matrix, TensorTransform::Chunk(_)) if !is_numbered(tensor) => {
                vec![self.parts.len() * rows, columns]
            }
            (StorageRole::Matrix, TensorTransform::Chunk(_)) => {
                let kinds: HashSet<String> =
                    self.parts.iter().map(|part| without_number(part.tensor)).collect();
                let of = kinds.len().max(1);
                vec![self.parts.len() / of, of * rows, columns]
            }
            (StorageRole::Matrix, _) => vec![rows, columns],
        };
        Ok(())
    }

    /// Returns true if the model holds it as a vector.
    pub(super) fn is_vector(&self) -> bool {
        self.parts.iter().any(|part| part.tensor.role == StorageRole::Vector)
    }

    /// Returns the number of elements.
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the block type in which the model holds it, if all of its parts have the same.
    pub(super) fn native(&self, model: &ExportModel<'_>) -> Option<BlockType> {
        if self.is_vector() {
            return Some(BlockType::F32);
        }
        let mut types = self.parts.iter().map(|part| model.block_of(part.tensor.panel));
        let first = types.next()??;
        types.all(|other| other == Some(first)).then_some(first)
    }

    /// Returns the float type in which it is written where floats are required: the model's own for [`Dtype::Keep`],
    /// and for vectors `usual` if that is exact.
    pub(super) fn float(&self, model: &ExportModel<'_>, dtype: Dtype, usual: BlockType) -> Result<BlockType> {
        if let Some(block) = dtype.block() {
            return Ok(block);
        }
        if !self.is_vector() {
            let native = self.native(model).filter(|block| block.codec().elements == 1);
            return Ok(native.unwrap_or(BlockType::F32));
        }
        let mut exact = true;
        self.write(BlockType::F32, &mut |bytes| {
            let values = floats(bytes);
            let mut encoded = vec![0; usual.row_bytes(values.len()).unwrap_or(0)];
            let mut again = vec![0.0; values.len()];
            let done =
                usual.quantize_row(&values, None, &mut encoded) && usual.dequantize_row(&encoded, &mut again);
            exact &= done && values.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits());
            Ok(())
        })?;
        Ok(if exact { usual } else { BlockType::F32 })
    }

    /// Returns the columns of a written row.
    fn columns(&self) -> usize {
        let tensor = self.parts.first().map(|part| (part.tensor, part.take));
        match tensor {
            Some((tensor, TensorTransform::Transposed)) if tensor.role == StorageRole::Matrix => tensor.rows,
            Some((tensor, _)) => tensor.columns,
            None => 0,
        }
    }

    /// Returns the size in bytes as blocks of `block`, or an error if rows are not whole blocks.
    pub(super) fn bytes(&self, block: BlockType) -> Result<u64> {
        let columns = self.columns();
        let row = block.row_bytes(columns).ok_or_else(|| {
            Error::unsupported(
                &self.name,
                format!("{columns} columns are not whole blocks of {}", block.name()),
            )
        })?;
        Ok(row as u64 * (self.elements() / columns.max(1)) as u64)
    }

    /// Passes its bytes as blocks of `block` to `sink`, in order.
    pub(super) fn write(&self, block: BlockType, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.parts.iter().try_for_each(|part| self.write_part(part, block, sink))
    }

    /// Does the same with progress reports.
    pub(super) fn write_with(
        &self,
        block: BlockType,
        progress: &dyn ProgressSink,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.write(block, &mut |bytes| {
            sink(bytes)?;
            progress.advance(bytes.len() as u64);
            match progress.canceled() {
                true => Err(Error::canceled("")),
                false => Ok(()),
            }
        })
    }

    fn write_part(
        &self,
        part: &ModelTensor<'_>,
        block: BlockType,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let ModelTensor { tensor, take } = *part;
        let places = places(
            take,
            if tensor.role == StorageRole::Vector { tensor.columns } else { tensor.rows },
            self.model_config,
        );
        if tensor.role == StorageRole::Vector {
            let numbers = tensor.floats();
            let number = |index: usize| {
                let number = numbers.get(places.as_ref().map_or(index, |places| places[index]));
                let number = number.copied().unwrap_or(0.0);
                if take == TensorTransform::PlusOne { number - 1.0 } else { number }
            };
            let values: Vec<f32> = (0..numbers.len()).map(number).collect();
            return sink(&self.encoded(&values, block)?);
        }
        if take == TensorTransform::Transposed {
            return self.write_transposed(tensor, block, sink);
        }
        let size = block.row_bytes(tensor.columns).filter(|&size| size > 0);
        let size = size.ok_or_else(|| Error::unsupported(&self.name, "rows are not whole blocks"))?;
        let at_once = (CHUNK / size).clamp(1, tensor.rows.max(1));
        let mut out = Vec::new();
        for first in (0..tensor.rows).step_by(at_once) {
            out.resize(at_once.min(tensor.rows - first) * size, 0);
            out.par_chunks_exact_mut(size).enumerate().try_for_each(|(index, out)| {
                let row = places.as_ref().map_or(first + index, |places| places[first + index]);
                self.row(tensor, take, row, block, out)
            })?;
            sink(&out)?;
        }
        Ok(())
    }

    /// Writes row `row` of the model as blocks.
    fn row(
        &self,
        tensor: &Tensor,
        take: TensorTransform,
        row: usize,
        block: BlockType,
        out: &mut [u8],
    ) -> Result<()> {
        let TensorTransform::Neighbors(count) = take else {
            if block.codec().panel != tensor.panel {
                return self.read(rows::blocks(tensor, row, block, out));
            }
            return match rows::exact(tensor, row, block, out) {
                true => Ok(()),
                false => Err(cannot_hold(tensor, block)),
            };
        };
        let (columns, count) = (tensor.columns, usize::from(count));
        let mut values = vec![0.0; columns];
        self.read(rows::values(tensor, row, &mut values))?;
        let width = columns / count.max(1);
        let neighbors: Vec<f32> =
            (0..columns).map(|index| values[index % count * width + index / count]).collect();
        self.read(block.quantize_row(&neighbors, None, out))
    }

    /// Writes the model's columns as rows.
    fn write_transposed(
        &self,
        tensor: &Tensor,
        block: BlockType,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let (rows, columns) = (tensor.rows, tensor.columns);
        let mut values = vec![0.0; rows * columns];
        values
            .par_chunks_exact_mut(columns.max(1))
            .enumerate()
            .try_for_each(|(row, out)| self.read(rows::values(tensor, row, out)))?;
        for column in 0..columns {
            let gathered: Vec<f32> = (0..rows).map(|row| values[row * columns + column]).collect();
            sink(&self.encoded(&gathered, block)?)?;
        }
        Ok(())
    }

    fn encoded(&self, values: &[f32], block: BlockType) -> Result<Vec<u8>> {
        let mut out = vec![0; block.row_bytes(values.len()).unwrap_or(0)];
        if matches!(block, BlockType::F16)
            && values.iter().any(|x| x.is_finite() && x.abs() >= TOO_MUCH_FOR_F16)
        {
            return Err(Error::unsupported(&self.name, "exceeds the range of f16: export as f32 or bf16"));
        }
        match block.quantize_row(values, None, &mut out) {
            true => Ok(out),
            false => Err(self.broken()),
        }
    }

    /// Returns an error unless the rows were read.
    fn read(&self, done: bool) -> Result<()> {
        if done { Ok(()) } else { Err(self.broken()) }
    }

    fn broken(&self) -> Error {
        Error::corrupt(&self.name, "its rows cannot be read from the packed file")
    }
}

/// Returns the error for panels with weights that blocks of the type they would be exported as cannot hold.
fn cannot_hold(tensor: &Tensor, block: BlockType) -> Error {
    let message = format!("{} blocks cannot hold these weights: export them as floats", block.name());
    Error::unsupported(&tensor.name, message)
}

/// Values from here on round to infinity in f16.
const TOO_MUCH_FOR_F16: f32 = 65520.0;

/// Returns the model's row for each written row, or `None` if the order is the same.
fn places(take: TensorTransform, rows: usize, model_config: &ModelConfig) -> Option<Vec<usize>> {
    if !matches!(take, TensorTransform::GroupedQkv | TensorTransform::RotatedPairs) {
        return None;
    }
    let mut places = vec![0; rows];
    for row in 0..rows {
        if let Some(place) = places.get_mut(take.source_row(row, rows, model_config)) {
            *place = row;
        }
    }
    Some(places)
}

/// Returns true if the tensor is one of several under one name, like those of experts.
fn is_numbered(tensor: &Tensor) -> bool {
    let number = tensor.name.rsplit('.').nth(1);
    number.is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the name of a tensor without its last number.
fn without_number(tensor: &Tensor) -> String {
    let parts: Vec<&str> = tensor.name.split('.').collect();
    let last = parts.iter().rposition(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    parts
        .iter()
        .enumerate()
        .filter(|(at, _)| Some(*at) != last)
        .map(|(_, part)| *part)
        .collect::<Vec<_>>()
        .join(".")
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Returns the most common float type among the matrices.
pub(super) fn usual_float(model: &ExportModel<'_>, entries: &[Entry<'_>]) -> BlockType {
    let floats = [BlockType::F32, BlockType::F16, BlockType::BF16];
    let count = |block: BlockType| {
        let all = entries.iter().filter(|entry| !entry.is_vector());
        all.filter(|entry| entry.native(model) == Some(block)).map(Entry::elements).sum::<usize>()
    };
    floats.into_iter().max_by_key(|&block| (count(block), block == BlockType::F32)).unwrap_or(BlockType::F32)
}
