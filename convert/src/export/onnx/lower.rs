//! Lowers one graph of a model to ONNX nodes.

use super::nodes::Nodes;
use super::weights::Initializers;
use siskin_format::{Error, Result};
use siskin_graph::{Graph, Node, RopeScaling, RopeScalingMethod, ValueId, WeightId};
use std::collections::HashMap;

/// The ONNX form of a value of the graph.
#[derive(Clone)]
pub(super) enum OnnxValue {
    /// A tensor.
    Plain(String),
    /// The router's weight of each expert for each row, zero for experts that are not selected.
    Routed(String),
    /// One tensor of all rows per expert.
    Experts(Vec<String>),
}

/// Names of the inputs of a graph.
#[derive(Clone, Default)]
pub(super) struct Inputs {
    /// Token ids, or audio features.
    pub(super) rows: String,
    /// The padding mask, 1 for tokens and 0 for padding, if there may be padding.
    pub(super) mask: Option<String>,
    /// Token type ids, if the model has segment embeddings.
    pub(super) token_types: Option<String>,
    /// 1 for tokens with global attention.
    pub(super) marks: Option<String>,
}

/// Writes an operation as ONNX nodes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no ONNX form",
    note = "implement `OnnxLowering` for it in `convert/src/export/onnx/`, or list it in `unsupported!`"
)]
pub(super) trait OnnxLowering {
    /// Writes the nodes of `node`; returns its output.
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue>;
}

/// A graph that is being lowered.
pub(super) struct GraphLowering<'a, 'b> {
    pub(super) graph: &'a Graph,
    pub(super) nodes: &'b mut Nodes,
    pub(super) weights: &'b mut Initializers<'a>,
    pub(super) inputs: Inputs,
    /// Cross-attention keys and values of the encoder, by layer.
    pub(super) memory: &'b mut HashMap<usize, (String, String)>,
    /// The padding mask of the encoder's input.
    pub(super) memory_mask: Option<String>,
    pub(super) values: HashMap<ValueId, OnnxValue>,
    /// The last hidden state of every token.
    pub(super) hidden: Option<String>,
    /// Cached intermediate values by key.
    pub(super) cached_values: HashMap<String, String>,
}

impl<'a, 'b> GraphLowering<'a, 'b> {
    pub(super) fn new(
        graph: &'a Graph,
        nodes: &'b mut Nodes,
        weights: &'b mut Initializers<'a>,
        inputs: Inputs,
        memory: (&'b mut HashMap<usize, (String, String)>, Option<String>),
    ) -> Self {
        let (memory, memory_mask) = memory;
        Self {
            graph,
            nodes,
            weights,
            inputs,
            memory,
            memory_mask,
            values: HashMap::new(),
            hidden: None,
            cached_values: HashMap::new(),
        }
    }

    /// Writes all nodes and returns the name of the graph's output.
    pub(super) fn write(&mut self) -> Result<String> {
        let graph = self.graph;
        let grows = |scaling: &RopeScaling| matches!(scaling.method, RopeScalingMethod::DynamicNtk { .. });
        if graph.ropes.iter().any(|rope| rope.scaling.as_ref().is_some_and(grows)) {
            return Err(unwritten("RoPE frequencies that depend on the sequence length"));
        }
        for node in &graph.nodes {
            let operation: &dyn OnnxLowering = siskin_graph::dispatch!(&node.op, |operation| operation);
            let value = operation.lower(self, node)?;
            self.values.insert(node.output, value);
        }
        self.plain(graph.output)
    }

    /// Returns the name of a value that is a single tensor.
    pub(super) fn plain(&self, value: ValueId) -> Result<String> {
        match self.values.get(&value) {
            Some(OnnxValue::Plain(name)) => Ok(name.clone()),
            _ => Err(Error::unsupported("graph", format!("value {value} is not a single tensor here"))),
        }
    }

    /// Returns the name of an input that is a single tensor.
    pub(super) fn input(&self, node: &Node, index: usize) -> Result<String> {
        self.plain(node.inputs[index])
    }

    /// Returns the number of columns of a node's output.
    pub(super) fn columns(&self, node: &Node) -> i64 {
        self.graph.values[node.output].columns as i64
    }

    /// Applies a function to a value, or to each expert's part of it.
    pub(super) fn each(
        &mut self,
        value: ValueId,
        function: impl Fn(&mut Self, &str) -> String,
    ) -> Result<OnnxValue> {
        match self.values.get(&value).cloned() {
            Some(OnnxValue::Experts(parts)) => {
                Ok(OnnxValue::Experts(parts.iter().map(|part| function(self, part)).collect()))
            }
            _ => {
                let x = self.plain(value)?;
                Ok(OnnxValue::Plain(function(self, &x)))
            }
        }
    }

    pub(super) fn weight(&mut self, weight: WeightId) -> Result<String> {
        self.weights.plain(self.nodes, &self.graph.weights[weight])
    }

    pub(super) fn product(&mut self, x: &str, weight: WeightId, bias: Option<WeightId>) -> Result<String> {
        let matrix = self.weights.turned(self.nodes, &self.graph.weights[weight])?;
        let product = self.nodes.add("MatMul", &[x, &matrix]);
        let Some(bias) = bias else { return Ok(product) };
        let bias = self.weight(bias)?;
        Ok(self.nodes.add("Add", &[&product, &bias]))
    }

    pub(super) fn joined(&mut self, parts: &[String]) -> String {
        match parts {
            [only] => only.clone(),
            parts => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                self.nodes.concat(&parts, -1)
            }
        }
    }

    pub(super) fn softcap(&mut self, x: &str, cap: f32) -> String {
        let divisor = self.nodes.float(cap);
        let x = if cap == 1.0 { x.to_owned() } else { self.nodes.add("Div", &[x, &divisor]) };
        let tanh = self.nodes.add("Tanh", &[&x]);
        self.nodes.times(&tanh, cap)
    }

    /// Returns the global attention mask, or an error if the graph has no such input.
    pub(super) fn marks(&self) -> Result<String> {
        let what = || Error::unsupported("graph", "global attention of Longformer without marked tokens");
        self.inputs.marks.clone().ok_or_else(what)
    }
}

/// Returns the error for an operation that cannot be exported.
pub(super) fn unwritten(what: &str) -> Error {
    Error::unsupported("graph", format!("{what} cannot be exported to ONNX; export to safetensors"))
}
