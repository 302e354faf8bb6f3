//! Weights as initializers in the layout of Hugging Face, and the nodes that convert them to the graph's layout.
//!
//! Runtimes fold these nodes when they load the model.

use super::nodes::Nodes;
use super::proto::Element;
use crate::export::model::ExportModel;
use crate::export::tensors::Entry;
use siskin_format::file::StorageRole;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::Weight;
use siskin_graph::arch::TensorTransform;
use siskin_kernels::quant::BlockType;
use std::collections::HashMap;

/// The initializer of each weight.
pub(super) struct Initializers<'a> {
    model: &'a ExportModel<'a>,
    entries: &'a [Entry<'a>],
    types: &'a [BlockType],
    /// Maps a weight's name to an entry and the part in it.
    places: HashMap<&'a str, (usize, usize)>,
    /// Nodes that exist already, by name and whether the weight is transposed.
    cached: HashMap<(String, bool), String>,
}

impl<'a> Initializers<'a> {
    pub(super) fn new(model: &'a ExportModel<'a>, entries: &'a [Entry<'a>], types: &'a [BlockType]) -> Self {
        let mut places = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            for (part, ours) in entry.parts.iter().enumerate() {
                places.insert(ours.tensor.name.as_str(), (at, part));
            }
        }
        Self { model, entries, types, places, cached: HashMap::new() }
    }

    /// Returns a vector, or a matrix with outputs as rows.
    pub(super) fn plain(&mut self, nodes: &mut Nodes, weight: &Weight) -> Result<String> {
        self.value(nodes, weight, false)
    }

    /// Returns a matrix with inputs as rows, for `x · W`.
    pub(super) fn turned(&mut self, nodes: &mut Nodes, weight: &Weight) -> Result<String> {
        self.value(nodes, weight, true)
    }

    fn value(&mut self, nodes: &mut Nodes, weight: &Weight, turned: bool) -> Result<String> {
        let key = (weight.name.clone(), turned);
        if let Some(value) = self.cached.get(&key) {
            return Ok(value.clone());
        }
        let missing = || Error::new(ErrorKind::Missing, &weight.name, "missing initializer");
        let &(at, part) = self.places.get(weight.name.as_str()).ok_or_else(missing)?;
        let entry = self.entries.get(at).ok_or_else(missing)?;
        let scope = std::mem::replace(&mut nodes.scope, "weights");
        let value = match self.types.get(at) {
            Some(BlockType::F32) => entry.name.clone(),
            _ => self.widened(nodes, entry),
        };
        let value = self.taken(nodes, entry, part, value, turned);
        nodes.scope = scope;
        self.cached.insert(key, value.clone());
        Ok(value)
    }

    /// Returns the initializer cast to f32.
    fn widened(&mut self, nodes: &mut Nodes, entry: &Entry<'_>) -> String {
        let key = (format!("{} as f32", entry.name), false);
        if let Some(value) = self.cached.get(&key) {
            return value.clone();
        }
        let value = nodes.cast(&entry.name, Element::Float);
        self.cached.insert(key, value.clone());
        value
    }

    fn taken(
        &self,
        nodes: &mut Nodes,
        entry: &Entry<'_>,
        part: usize,
        whole: String,
        turned: bool,
    ) -> String {
        let ours = &entry.parts[part];
        let (rows, columns) = (ours.tensor.rows as i64, ours.tensor.columns as i64);
        let is_vector = ours.tensor.role == StorageRole::Vector;
        let plain = match ours.take {
            TensorTransform::Transposed if !is_vector => {
                return if turned { whole } else { nodes.transpose(&whole, &[1, 0]) };
            }
            TensorTransform::PlusOne => {
                let one = nodes.float(1.0);
                nodes.add("Add", &[&whole, &one])
            }
            TensorTransform::GroupedQkv if is_vector => self.ungrouped(nodes, &whole, &[-1]),
            TensorTransform::GroupedQkv => self.ungrouped(nodes, &whole, &[rows, columns]),
            TensorTransform::Neighbors(_) if !is_vector => {
                let near = nodes.transpose(&whole, &[0, 2, 1]);
                nodes.reshape(&near, &[rows, columns])
            }
            TensorTransform::Chunk(chunk) => {
                let (flat, chunk) = (nodes.reshape(&whole, &[-1, columns]), i64::from(chunk));
                nodes.slice(&flat, 0, chunk * rows, (chunk + 1) * rows, 1)
            }
            TensorTransform::Whole
            | TensorTransform::Transposed
            | TensorTransform::Neighbors(_)
            | TensorTransform::Stacked { .. }
            | TensorTransform::StackedAcross { .. }
            | TensorTransform::Across { .. }
            | TensorTransform::HalfOfHeads(_)
            | TensorTransform::OfState(_)
            | TensorTransform::RotatedPairs => whole,
        };
        if turned && !is_vector { nodes.transpose(&plain, &[1, 0]) } else { plain }
    }

    /// Returns all queries, then all keys, then all values of a matrix or vector of these sizes.
    fn ungrouped(&self, nodes: &mut Nodes, whole: &str, sizes: &[i64]) -> String {
        let h = &self.model.model_config;
        let shared = (h.heads / h.kv_heads.max(1)) as i64;
        let columns = &sizes[1..];
        let groups = [&[-1, shared + 2, h.head_size as i64][..], columns].concat();
        let groups = nodes.reshape(whole, &groups);
        if shared == 1 {
            let kinds = nodes.transpose(&groups, if columns.is_empty() { &[1, 0, 2] } else { &[1, 0, 2, 3] });
            return nodes.reshape(&kinds, sizes);
        }
        let kinds = [(0, shared), (shared, shared + 1), (shared + 1, shared + 2)].map(|(start, end)| {
            let kind = nodes.slice(&groups, 1, start, end, 1);
            nodes.reshape(&kind, &[&[-1][..], columns].concat())
        });
        nodes.concat(&kinds.each_ref().map(String::as_str), 0)
    }
}
