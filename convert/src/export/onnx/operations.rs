//! The ONNX form of each operation but attention and experts.

use super::lower::{GraphLowering, OnnxLowering, OnnxValue, unwritten};
use super::nodes::Nodes;
use super::proto::{AttributeValue, Element};
use siskin_format::Result;
use siskin_graph::op::{
    Activate, Add, Affine, CausalConv1d, Clamp, ClampedGate, DecayGate, Embed, EmbedPosition, EmbedSegment,
    ExternalInput, Gate, Im2col, InputFeatures, L2Normalize, Linear, LinearAttention, MultiLora, Norm,
    NormKind, RepeatColumns, Rope, Scale, SelectOutputs, SinusoidalPositions, SliceColumns, Softcap,
};
use siskin_graph::{ActivationFunction, Node, OutputHead};

/// Operations that are not exported.
macro_rules! unsupported {
    ($($operation:ident: $what:literal;)*) => {$(
        impl OnnxLowering for $operation {
            fn lower(&self, _: &mut GraphLowering<'_, '_>, _: &Node) -> Result<OnnxValue> {
                Err(unwritten($what))
            }
        }
    )*};
}

unsupported! {
    ExternalInput: "the output of another part of the model";
    MultiLora: "per-request LoRA adapters";
    ClampedGate: "a clamped gate";
    L2Normalize: "L2 normalization of rows";
    DecayGate: "linear attention";
    CausalConv1d: "a causal convolution";
    LinearAttention: "linear attention";
}

impl OnnxLowering for Embed {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, _: &Node) -> Result<OnnxValue> {
        let table = lowering.weight(self.table)?;
        let ids = lowering.inputs.rows.clone();
        Ok(OnnxValue::Plain(lowering.nodes.gather(&table, &ids, 0)))
    }
}

impl OnnxLowering for EmbedSegment {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, _: &Node) -> Result<OnnxValue> {
        let table = lowering.weight(self.table)?;
        Ok(OnnxValue::Plain(match lowering.inputs.token_types.clone() {
            Some(token_types) => lowering.nodes.gather(&table, &token_types, 0),
            None => lowering.nodes.slice(&table, 0, 0, 1, 1),
        }))
    }
}

impl OnnxLowering for EmbedPosition {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, _: &Node) -> Result<OnnxValue> {
        let table = lowering.weight(self.table)?;
        let positions = lowering.positions();
        let positions = lowering.moved(&positions, self.offset as i64);
        Ok(OnnxValue::Plain(lowering.nodes.gather(&table, &positions, 0)))
    }
}

impl OnnxLowering for SinusoidalPositions {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, _: &Node) -> Result<OnnxValue> {
        Ok(OnnxValue::Plain(lowering.sines(self.rope, self.offset)))
    }
}

impl OnnxLowering for InputFeatures {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, _: &Node) -> Result<OnnxValue> {
        let features = lowering.inputs.rows.clone();
        Ok(OnnxValue::Plain(lowering.nodes.transpose(&features, &[0, 2, 1])))
    }
}

impl OnnxLowering for Im2col {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let reach = self.offsets.iter().map(|offset| offset.unsigned_abs()).max().unwrap_or(0) as i64;
        // Rows beyond the sequence are read even if they are padding, as in training.
        let pads = lowering.nodes.ints(&[0, reach, 0, 0, reach, 0]);
        let padded = lowering.nodes.add("Pad", &[&x, &pads]);
        let parts: Vec<String> = self
            .offsets
            .iter()
            .map(|&offset| {
                let behind = reach - offset as i64;
                let end = if behind == 0 { i64::MAX } else { -behind };
                lowering.nodes.slice(&padded, 1, reach + offset as i64, end, self.stride as i64)
            })
            .collect();
        Ok(OnnxValue::Plain(lowering.joined(&parts)))
    }
}

impl OnnxLowering for SliceColumns {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let (start, end) = (self.start as i64, (self.start + self.columns) as i64);
        Ok(OnnxValue::Plain(lowering.nodes.slice(&x, -1, start, end, 1)))
    }
}

impl OnnxLowering for RepeatColumns {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let apart = lowering.nodes.reshape(&x, &[0, 0, -1, 1]);
        let copies = lowering.nodes.ints(&[1, 1, 1, self.times as i64]);
        let copies = lowering.nodes.add("Expand", &[&apart, &copies]);
        let columns = lowering.columns(node);
        Ok(OnnxValue::Plain(lowering.nodes.reshape(&copies, &[0, 0, columns])))
    }
}

// All rows, or for classification the first token of each sequence.
impl OnnxLowering for SelectOutputs {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        lowering.hidden.get_or_insert_with(|| x.clone());
        if lowering.graph.head != OutputHead::Class {
            return Ok(OnnxValue::Plain(x));
        }
        Ok(OnnxValue::Plain(match lowering.inputs.mask.clone() {
            Some(mask) => {
                let mask = lowering.nodes.cast(&mask, Element::Float);
                let attributes = [AttributeValue::Int("axis", 1), AttributeValue::Int("keepdims", 1)];
                let first = lowering.nodes.with("ArgMax", &[&mask], &attributes);
                lowering.nodes.with("GatherND", &[&x, &first], &[AttributeValue::Int("batch_dims", 1)])
            }
            None => {
                let first = lowering.nodes.int(0);
                lowering.nodes.gather(&x, &first, 1)
            }
        }))
    }
}

impl OnnxLowering for Linear {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let parts = self.parts.iter().map(|&(weight, bias)| lowering.product(&x, weight, bias));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok(OnnxValue::Plain(lowering.joined(&parts)))
    }
}

impl OnnxLowering for Rope {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let columns = lowering.columns(node);
        Ok(OnnxValue::Plain(lowering.rotate(&x, self.rope, self.head_size as i64, columns)))
    }
}

impl OnnxLowering for Norm {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let &Self { kind, weight, bias, epsilon, group } = self;
        let (x, columns) = (lowering.input(node, 0)?, lowering.columns(node) as usize);
        let length = lowering.graph.weights[weight].columns;
        let weight = lowering.weight(weight)?;
        let bias = bias.map(|bias| lowering.weight(bias)).transpose()?;
        let grouped = group != columns;
        let shaped =
            |side: &mut GraphLowering<'_, '_>, x: &str| side.nodes.reshape(x, &[0, 0, -1, group as i64]);
        let input = if grouped { shaped(lowering, &x) } else { x };
        // A vector that is longer than a group has one part per group.
        let part = |side: &mut GraphLowering<'_, '_>, list: String| match grouped && length != group {
            true => side.nodes.reshape(&list, &[-1, group as i64]),
            false => list,
        };
        let weight = part(lowering, weight);
        let bias = bias.map(|bias| part(lowering, bias));
        let normed = match kind {
            NormKind::Layer if !grouped => {
                let inputs: Vec<&str> =
                    [Some(input.as_str()), Some(&weight), bias.as_deref()].into_iter().flatten().collect();
                let attributes = [AttributeValue::Int("axis", -1), AttributeValue::Float("epsilon", epsilon)];
                lowering.nodes.with("LayerNormalization", &inputs, &attributes)
            }
            NormKind::Layer | NormKind::Rms => {
                let centered = match kind {
                    NormKind::Rms => input,
                    NormKind::Layer => {
                        let mean = lowering.mean(&input);
                        lowering.nodes.add("Sub", &[&input, &mean])
                    }
                };
                let squares = lowering.nodes.add("Mul", &[&centered, &centered]);
                let mean = lowering.mean(&squares);
                let epsilon = lowering.nodes.float(epsilon);
                let variance = lowering.nodes.add("Add", &[&mean, &epsilon]);
                let deviation = lowering.nodes.add("Sqrt", &[&variance]);
                let normed = lowering.nodes.add("Div", &[&centered, &deviation]);
                let scaled = lowering.nodes.add("Mul", &[&normed, &weight]);
                match bias {
                    Some(bias) => lowering.nodes.add("Add", &[&scaled, &bias]),
                    None => scaled,
                }
            }
        };
        let out = if grouped { lowering.nodes.reshape(&normed, &[0, 0, columns as i64]) } else { normed };
        Ok(OnnxValue::Plain(out))
    }
}

impl OnnxLowering for Activate {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        lowering.each(node.inputs[0], |lowering, x| activate(lowering.nodes, self.function, x))
    }
}

impl OnnxLowering for Gate {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let function = self.function;
        let values = [0, 1].map(|index| lowering.values.get(&node.inputs[index]).cloned());
        if let [Some(OnnxValue::Experts(gates)), Some(OnnxValue::Experts(ups))] = values {
            let parts = gates.iter().zip(&ups).map(|(gate, up)| {
                let gate = activate(lowering.nodes, function, gate);
                lowering.nodes.add("Mul", &[&gate, up])
            });
            return Ok(OnnxValue::Experts(parts.collect()));
        }
        let (gate, up) = (lowering.plain(node.inputs[0])?, lowering.plain(node.inputs[1])?);
        let gate = activate(lowering.nodes, function, &gate);
        Ok(OnnxValue::Plain(lowering.nodes.add("Mul", &[&gate, &up])))
    }
}

impl OnnxLowering for Add {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let (a, b) = (lowering.input(node, 0)?, lowering.input(node, 1)?);
        Ok(OnnxValue::Plain(lowering.nodes.add("Add", &[&a, &b])))
    }
}

impl OnnxLowering for Affine {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let (weight, bias) = (lowering.weight(self.weight)?, lowering.weight(self.bias)?);
        let scaled = lowering.nodes.add("Mul", &[&x, &weight]);
        Ok(OnnxValue::Plain(lowering.nodes.add("Add", &[&scaled, &bias])))
    }
}

impl OnnxLowering for Scale {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        Ok(OnnxValue::Plain(lowering.nodes.times(&x, self.factor)))
    }
}

impl OnnxLowering for Softcap {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        Ok(OnnxValue::Plain(lowering.softcap(&x, self.cap)))
    }
}

impl OnnxLowering for Clamp {
    fn lower(&self, lowering: &mut GraphLowering<'_, '_>, node: &Node) -> Result<OnnxValue> {
        let x = lowering.input(node, 0)?;
        let (low, high) = (lowering.nodes.float(-self.limit), lowering.nodes.float(self.limit));
        Ok(OnnxValue::Plain(lowering.nodes.add("Clip", &[&x, &low, &high])))
    }
}

fn activate(nodes: &mut Nodes, function: ActivationFunction, x: &str) -> String {
    match function {
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

/// Returns `x · (1 + y) / 2`.
fn half_of(nodes: &mut Nodes, x: &str, y: &str) -> String {
    let one = nodes.float(1.0);
    let sum = nodes.add("Add", &[y, &one]);
    let x = nodes.times(x, 0.5);
    nodes.add("Mul", &[&x, &sum])
}

impl GraphLowering<'_, '_> {
    fn mean(&mut self, x: &str) -> String {
        let attributes = [AttributeValue::Ints("axes", &[-1]), AttributeValue::Int("keepdims", 1)];
        self.nodes.with("ReduceMean", &[x], &attributes)
    }
}
