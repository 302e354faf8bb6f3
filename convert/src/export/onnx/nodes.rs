//! The nodes of a model, in order.

use super::proto::{self, AttributeValue, Element, ProtoWriter};
use std::collections::HashMap;

/// Nodes and their small constants.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<ProtoWriter>,
    pub(super) constants: Vec<ProtoWriter>,
    known: HashMap<Vec<u8>, String>,
    counts: HashMap<String, usize>,
    /// Prefix of node names.
    pub(super) scope: &'static str,
}

impl Nodes {
    /// Adds a node and returns the name of its output.
    pub(super) fn add(&mut self, op: &str, inputs: &[&str]) -> String {
        self.with(op, inputs, &[])
    }

    /// Adds a node with attributes.
    pub(super) fn with(&mut self, op: &str, inputs: &[&str], attributes: &[AttributeValue<'_>]) -> String {
        let name = self.fresh(op);
        self.nodes.push(proto::node(op, &name, inputs, &[&name], attributes));
        name
    }

    /// Adds a node with two outputs.
    pub(super) fn two(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[AttributeValue<'_>],
    ) -> (String, String) {
        let name = self.fresh(op);
        let outputs = (format!("{name}_values"), format!("{name}_indices"));
        self.nodes.push(proto::node(op, &name, inputs, &[&outputs.0, &outputs.1], attributes));
        outputs
    }

    /// Adds a node whose output has a fixed name.
    pub(super) fn named(
        &mut self,
        op: &str,
        inputs: &[&str],
        output: &str,
        attributes: &[AttributeValue<'_>],
    ) {
        let name = self.fresh(op);
        self.nodes.push(proto::node(op, &name, inputs, &[output], attributes));
    }

    fn fresh(&mut self, op: &str) -> String {
        let stem = format!("{}/{op}", self.scope);
        let count = self.counts.entry(stem.clone()).or_default();
        *count += 1;
        format!("{stem}_{count}")
    }

    /// Adds a named constant.
    pub(super) fn constant(&mut self, element: Element, sizes: &[usize], data: &[u8]) -> String {
        let plain = proto::tensor("", element, sizes).data(9, data);
        if let Some(known) = self.known.get(plain.bytes()) {
            return known.clone();
        }
        let name = format!("constant_{}", self.constants.len());
        self.constants.push(proto::tensor(&name, element, sizes).data(9, data));
        self.known.insert(plain.bytes().to_vec(), name.clone());
        name
    }

    pub(super) fn ints(&mut self, numbers: &[i64]) -> String {
        self.table(&[numbers.len()], numbers)
    }

    pub(super) fn int(&mut self, number: i64) -> String {
        self.table(&[], &[number])
    }

    pub(super) fn table(&mut self, sizes: &[usize], numbers: &[i64]) -> String {
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.constant(Element::Int64, sizes, &data)
    }

    pub(super) fn float(&mut self, number: f32) -> String {
        self.floats(&[], &[number])
    }

    pub(super) fn floats(&mut self, sizes: &[usize], numbers: &[f32]) -> String {
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.constant(Element::Float, sizes, &data)
    }

    pub(super) fn reshape(&mut self, x: &str, sizes: &[i64]) -> String {
        let sizes = self.ints(sizes);
        self.add("Reshape", &[x, &sizes])
    }

    pub(super) fn transpose(&mut self, x: &str, order: &[i64]) -> String {
        self.with("Transpose", &[x], &[AttributeValue::Ints("perm", order)])
    }

    pub(super) fn unsqueeze(&mut self, x: &str, axes: &[i64]) -> String {
        let axes = self.ints(axes);
        self.add("Unsqueeze", &[x, &axes])
    }

    /// Slices `start..end` along an axis with stride `step`.
    pub(super) fn slice(&mut self, x: &str, axis: i64, start: i64, end: i64, step: i64) -> String {
        let [start, end, axis, step] = [start, end, axis, step].map(|number| self.ints(&[number]));
        self.add("Slice", &[x, &start, &end, &axis, &step])
    }

    pub(super) fn gather(&mut self, table: &str, indices: &str, axis: i64) -> String {
        self.with("Gather", &[table, indices], &[AttributeValue::Int("axis", axis)])
    }

    pub(super) fn concat(&mut self, parts: &[&str], axis: i64) -> String {
        self.with("Concat", parts, &[AttributeValue::Int("axis", axis)])
    }

    pub(super) fn cast(&mut self, x: &str, element: Element) -> String {
        self.with("Cast", &[x], &[AttributeValue::Int("to", element as i64)])
    }

    /// Multiplies `x` by a scalar. Returns `x` itself if the scalar is one.
    pub(super) fn times(&mut self, x: &str, factor: f32) -> String {
        if factor == 1.0 {
            return x.to_owned();
        }
        let factor = self.float(factor);
        self.add("Mul", &[x, &factor])
    }
}
