//! Lowers one graph of a model to ONNX nodes.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation is a compile error here")]

use super::nodes::Nodes;
use super::proto::{AttributeValue, Element};
use super::weights::Initializers;
use siskin_format::{Error, Result};
use siskin_graph::{
    ActivationFunction, AttentionMask, Graph, Node, NormKind, Op, OutputHead, RopeScaling, RopeScalingMethod,
    ValueId, WeightId,
};
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
    /// Segment ids, if the model has segment embeddings.
    pub(super) segments: Option<String>,
    /// 1 for tokens with global attention.
    pub(super) marks: Option<String>,
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
    values: HashMap<ValueId, OnnxValue>,
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
            let value = self.node(node)?;
            self.values.insert(node.output, value);
        }
        self.plain(graph.output)
    }

    /// Returns the name of a value that is a single tensor.
    fn plain(&self, value: ValueId) -> Result<String> {
        match self.values.get(&value) {
            Some(OnnxValue::Plain(name)) => Ok(name.clone()),
            _ => Err(Error::unsupported("graph", format!("value {value} is not a single tensor here"))),
        }
    }

    fn node(&mut self, node: &Node) -> Result<OnnxValue> {
        let input = |side: &Self, index: usize| side.plain(node.inputs[index]);
        let columns = self.graph.values[node.output].columns as i64;
        let out = match &node.op {
            Op::Embed { table } => {
                let table = self.weight(*table)?;
                let ids = self.inputs.rows.clone();
                self.nodes.gather(&table, &ids, 0)
            }
            Op::EmbedSegment { table } => {
                let table = self.weight(*table)?;
                match self.inputs.segments.clone() {
                    Some(segments) => self.nodes.gather(&table, &segments, 0),
                    None => self.nodes.slice(&table, 0, 0, 1, 1),
                }
            }
            Op::EmbedSine { rope, offset } => self.sines(*rope, *offset),
            Op::Features => {
                let features = self.inputs.rows.clone();
                self.nodes.transpose(&features, &[0, 2, 1])
            }
            Op::Im2col { offsets, stride } => {
                let x = input(self, 0)?;
                self.neighbors(&x, offsets, *stride)
            }
            Op::EmbedPosition { table, offset } => {
                let table = self.weight(*table)?;
                let positions = self.positions();
                let positions = self.moved(&positions, *offset as i64);
                self.nodes.gather(&table, &positions, 0)
            }
            Op::Norm { kind, weight, bias, epsilon, group } => {
                let x = input(self, 0)?;
                self.norm(&x, (*kind, *epsilon), (*weight, *bias), (*group, columns as usize))?
            }
            Op::Linear { parts } => {
                let x = input(self, 0)?;
                let parts = parts.iter().map(|&(weight, bias)| self.product(&x, weight, bias));
                let parts = parts.collect::<Result<Vec<_>>>()?;
                self.joined(&parts)
            }
            Op::Route(routing) => {
                let scores = input(self, 0)?;
                return Ok(OnnxValue::Routed(self.route(&scores, routing)));
            }
            Op::Dispatch(routing) => {
                let x = input(self, 0)?;
                return Ok(OnnxValue::Experts(vec![x; routing.experts]));
            }
            Op::ExpertLinear { weights, biases, .. } => {
                let Some(OnnxValue::Experts(inputs)) = self.values.get(&node.inputs[0]).cloned() else {
                    return Err(Error::unsupported("graph", "the input of experts must be dispatched rows"));
                };
                let products = inputs.iter().zip(weights).enumerate();
                let products = products
                    .map(|(expert, (x, &weight))| self.product(x, weight, biases.get(expert).copied()));
                return products.collect::<Result<_>>().map(OnnxValue::Experts);
            }
            Op::Combine(_) => self.combine(node)?,
            Op::SliceColumns { start } => {
                let x = input(self, 0)?;
                self.nodes.slice(&x, -1, *start as i64, *start as i64 + columns, 1)
            }
            Op::Rope { rope, head_size } => {
                let x = input(self, 0)?;
                self.rotate(&x, *rope, *head_size as i64, columns)
            }
            Op::Attention(attention) => {
                let inputs =
                    (0..node.inputs.len()).map(|index| input(self, index)).collect::<Result<Vec<_>>>()?;
                self.attention(attention, &inputs)?
            }
            Op::StoreCrossKv(attention) => {
                let (keys, values) = (input(self, 0)?, input(self, 1)?);
                self.memory.insert(attention.layer, (keys.clone(), values));
                keys
            }
            Op::Activate(kind) => return self.each(node.inputs[0], |side, x| side.activate(*kind, x)),
            Op::Gate(kind) => return self.gate(node, *kind),
            Op::Add => {
                let (a, b) = (input(self, 0)?, input(self, 1)?);
                self.nodes.add("Add", &[&a, &b])
            }
            Op::Affine { weight, bias } => {
                let x = input(self, 0)?;
                let (weight, bias) = (self.weight(*weight)?, self.weight(*bias)?);
                let scaled = self.nodes.add("Mul", &[&x, &weight]);
                self.nodes.add("Add", &[&scaled, &bias])
            }
            Op::Scale(factor) => {
                let x = input(self, 0)?;
                self.nodes.times(&x, *factor)
            }
            Op::Softcap(cap) => {
                let x = input(self, 0)?;
                self.softcap(&x, *cap)
            }
            Op::Clamp(limit) => {
                let x = input(self, 0)?;
                let (low, high) = (self.nodes.float(-limit), self.nodes.float(*limit));
                self.nodes.add("Clip", &[&x, &low, &high])
            }
            Op::RepeatColumns(times) => {
                let x = input(self, 0)?;
                self.repeat(&x, *times as i64, columns)
            }
            Op::ExternalInput => return Err(unwritten("the output of another part of the model")),
            Op::GateLimited(_) => return Err(unwritten("a clamped gate")),
            Op::L2Normalize { .. } => return Err(unwritten("L2 normalization of rows")),
            Op::DecayGate { .. } | Op::CausalConv1d { .. } | Op::LinearAttention(_) => {
                return Err(unwritten("linear attention"));
            }
            Op::SelectOutputs => {
                let x = input(self, 0)?;
                self.pick(x)
            }
        };
        Ok(OnnxValue::Plain(out))
    }

    /// Repeats every column `times` times, side by side.
    fn repeat(&mut self, x: &str, times: i64, columns: i64) -> String {
        let apart = self.nodes.reshape(x, &[0, 0, -1, 1]);
        let copies = self.nodes.ints(&[1, 1, 1, times]);
        let copies = self.nodes.add("Expand", &[&apart, &copies]);
        self.nodes.reshape(&copies, &[0, 0, columns])
    }

    /// Applies a function to a value, or to each expert's part of it.
    fn each(&mut self, value: ValueId, function: impl Fn(&mut Self, &str) -> String) -> Result<OnnxValue> {
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

    fn gate(&mut self, node: &Node, kind: ActivationFunction) -> Result<OnnxValue> {
        let values = [0, 1].map(|index| self.values.get(&node.inputs[index]).cloned());
        if let [Some(OnnxValue::Experts(gates)), Some(OnnxValue::Experts(ups))] = values {
            let parts = gates.iter().zip(&ups).map(|(gate, up)| {
                let gate = self.activate(kind, gate);
                self.nodes.add("Mul", &[&gate, up])
            });
            return Ok(OnnxValue::Experts(parts.collect()));
        }
        let (gate, up) = (self.plain(node.inputs[0])?, self.plain(node.inputs[1])?);
        let gate = self.activate(kind, &gate);
        Ok(OnnxValue::Plain(self.nodes.add("Mul", &[&gate, &up])))
    }

    pub(super) fn weight(&mut self, weight: WeightId) -> Result<String> {
        self.weights.plain(self.nodes, &self.graph.weights[weight])
    }

    fn product(&mut self, x: &str, weight: WeightId, bias: Option<WeightId>) -> Result<String> {
        let matrix = self.weights.turned(self.nodes, &self.graph.weights[weight])?;
        let product = self.nodes.add("MatMul", &[x, &matrix]);
        let Some(bias) = bias else { return Ok(product) };
        let bias = self.weight(bias)?;
        Ok(self.nodes.add("Add", &[&product, &bias]))
    }

    fn joined(&mut self, parts: &[String]) -> String {
        match parts {
            [only] => only.clone(),
            parts => {
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                self.nodes.concat(&parts, -1)
            }
        }
    }

    fn norm(
        &mut self,
        x: &str,
        (kind, epsilon): (NormKind, f32),
        (weight, bias): (WeightId, Option<WeightId>),
        (group, columns): (usize, usize),
    ) -> Result<String> {
        let length = self.graph.weights[weight].columns;
        let weight = self.weight(weight)?;
        let bias = bias.map(|bias| self.weight(bias)).transpose()?;
        let grouped = group != columns;
        let shaped = |side: &mut Self, x: &str| side.nodes.reshape(x, &[0, 0, -1, group as i64]);
        let input = if grouped { shaped(self, x) } else { x.to_owned() };
        // A vector that is longer than a group has one part per group.
        let part = |side: &mut Self, list: String| match grouped && length != group {
            true => side.nodes.reshape(&list, &[-1, group as i64]),
            false => list,
        };
        let weight = part(self, weight);
        let bias = bias.map(|bias| part(self, bias));
        let normed = match kind {
            NormKind::Layer if !grouped => {
                let inputs: Vec<&str> =
                    [Some(input.as_str()), Some(&weight), bias.as_deref()].into_iter().flatten().collect();
                let attributes = [AttributeValue::Int("axis", -1), AttributeValue::Float("epsilon", epsilon)];
                self.nodes.with("LayerNormalization", &inputs, &attributes)
            }
            NormKind::Layer | NormKind::Rms => {
                let centered = match kind {
                    NormKind::Rms => input,
                    NormKind::Layer => {
                        let mean = self.mean(&input);
                        self.nodes.add("Sub", &[&input, &mean])
                    }
                };
                let squares = self.nodes.add("Mul", &[&centered, &centered]);
                let mean = self.mean(&squares);
                let epsilon = self.nodes.float(epsilon);
                let variance = self.nodes.add("Add", &[&mean, &epsilon]);
                let deviation = self.nodes.add("Sqrt", &[&variance]);
                let normed = self.nodes.add("Div", &[&centered, &deviation]);
                let scaled = self.nodes.add("Mul", &[&normed, &weight]);
                match bias {
                    Some(bias) => self.nodes.add("Add", &[&scaled, &bias]),
                    None => scaled,
                }
            }
        };
        Ok(if grouped { self.nodes.reshape(&normed, &[0, 0, columns as i64]) } else { normed })
    }

    fn mean(&mut self, x: &str) -> String {
        let attributes = [AttributeValue::Ints("axes", &[-1]), AttributeValue::Int("keepdims", 1)];
        self.nodes.with("ReduceMean", &[x], &attributes)
    }

    pub(super) fn softcap(&mut self, x: &str, cap: f32) -> String {
        let divisor = self.nodes.float(cap);
        let x = if cap == 1.0 { x.to_owned() } else { self.nodes.add("Div", &[x, &divisor]) };
        let tanh = self.nodes.add("Tanh", &[&x]);
        self.nodes.times(&tanh, cap)
    }

    fn activate(&mut self, kind: ActivationFunction, x: &str) -> String {
        let nodes = &mut *self.nodes;
        match kind {
            ActivationFunction::Relu => nodes.add("Relu", &[x]),
            ActivationFunction::Sigmoid => nodes.add("Sigmoid", &[x]),
            ActivationFunction::EluPlusOne => {
                let (one, elu) = (nodes.float(1.0), nodes.add("Elu", &[x]));
                nodes.add("Add", &[&elu, &one])
            }
            ActivationFunction::Silu => {
                let gate = nodes.add("Sigmoid", &[x]);
                nodes.add("Mul", &[x, &gate])
            }
            ActivationFunction::Gelu => {
                let scaled = nodes.times(x, std::f32::consts::FRAC_1_SQRT_2);
                let erf = nodes.add("Erf", &[&scaled]);
                half_of(nodes, x, &erf)
            }
            ActivationFunction::GeluTanh => {
                let square = nodes.add("Mul", &[x, x]);
                let cube = nodes.add("Mul", &[&square, x]);
                let cube = nodes.times(&cube, 0.044_715);
                let sum = nodes.add("Add", &[x, &cube]);
                let sum = nodes.times(&sum, (2.0 / std::f32::consts::PI).sqrt());
                let tanh = nodes.add("Tanh", &[&sum]);
                half_of(nodes, x, &tanh)
            }
        }
    }

    /// Selects the output rows: all rows, or for classification the first token of each sequence.
    fn pick(&mut self, x: String) -> String {
        self.hidden.get_or_insert_with(|| x.clone());
        if self.graph.head != OutputHead::Class {
            return x;
        }
        match self.inputs.mask.clone() {
            Some(mask) => {
                let mask = self.nodes.cast(&mask, Element::Float);
                let attributes = [AttributeValue::Int("axis", 1), AttributeValue::Int("keepdims", 1)];
                let first = self.nodes.with("ArgMax", &[&mask], &attributes);
                self.nodes.with("GatherND", &[&x, &first], &[AttributeValue::Int("batch_dims", 1)])
            }
            None => {
                let first = self.nodes.int(0);
                self.nodes.gather(&x, &first, 1)
            }
        }
    }

    /// Gathers neighboring rows side by side (im2col).
    fn neighbors(&mut self, x: &str, offsets: &[isize], stride: usize) -> String {
        let reach = offsets.iter().map(|offset| offset.unsigned_abs()).max().unwrap_or(0) as i64;
        // Rows beyond the sequence are read even if they are padding, as in training.
        let pads = self.nodes.ints(&[0, reach, 0, 0, reach, 0]);
        let padded = self.nodes.add("Pad", &[x, &pads]);
        let parts: Vec<String> = offsets
            .iter()
            .map(|&offset| {
                let behind = reach - offset as i64;
                let end = if behind == 0 { i64::MAX } else { -behind };
                self.nodes.slice(&padded, 1, reach + offset as i64, end, stride as i64)
            })
            .collect();
        self.joined(&parts)
    }

    fn combine(&mut self, node: &Node) -> Result<String> {
        let (Some(OnnxValue::Experts(parts)), Some(OnnxValue::Routed(shares))) =
            (self.values.get(&node.inputs[0]).cloned(), self.values.get(&node.inputs[1]).cloned())
        else {
            return Err(Error::unsupported("graph", "the input of the combination must be expert outputs"));
        };
        let mut sum: Option<String> = None;
        for (expert, part) in parts.iter().enumerate() {
            let share = self.nodes.slice(&shares, -1, expert as i64, expert as i64 + 1, 1);
            let part = self.nodes.add("Mul", &[part, &share]);
            sum = Some(match sum {
                Some(sum) => self.nodes.add("Add", &[&sum, &part]),
                None => part,
            });
        }
        sum.ok_or_else(|| Error::unsupported("graph", "there are no experts"))
    }

    /// Returns the global attention mask, or an error if the graph has no such input.
    pub(super) fn marks(&self) -> Result<String> {
        let what = || {
            Error::unsupported(
                "graph",
                format!("{:?} without marked tokens", AttentionMask::LongformerGlobal),
            )
        };
        self.inputs.marks.clone().ok_or_else(what)
    }
}

/// Returns `x · (1 + y) / 2`.
fn half_of(nodes: &mut Nodes, x: &str, y: &str) -> String {
    let one = nodes.float(1.0);
    let sum = nodes.add("Add", &[y, &one]);
    let x = nodes.times(x, 0.5);
    nodes.add("Mul", &[&x, &sum])
}

/// Returns the error for an operation that cannot be exported.
pub(super) fn unwritten(what: &str) -> Error {
    Error::unsupported("graph", format!("{what} cannot be exported to ONNX; export to safetensors"))
}
