//! Graphs: nodes in topological order.

use crate::op::{Attention, AttentionMask, CausalConv1d, Im2col, LinearAttention, Op, Operands, ShapeCheck};
use crate::rope::{RopeScalingMethod, RopeTable};
use crate::types::{RowKind, ValueId, ValueShape, Weight};
use crate::window::StreamingWindow;
use siskin_format::{Error, ErrorKind, Result};

/// An operation with its inputs and its output.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<ValueId>,
    /// Its output.
    pub output: ValueId,
}

/// A model's computation. Nodes are in topological order.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The operations, in order.
    pub nodes: Vec<Node>,
    /// The values between the nodes.
    pub values: Vec<ValueShape>,
    /// The tensors needed from the file.
    pub weights: Vec<Weight>,
    /// The RoPE tables in use.
    pub ropes: Vec<RopeTable>,
    /// The output value.
    pub output: ValueId,
    /// The meaning of the output rows.
    pub head: OutputHead,
    /// The input of the head.
    pub hidden: ValueId,
    /// Early exits, in order of layer.
    pub exits: Vec<Exit>,
}

/// An early exit: a head on top of a layer before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The number of layers before it.
    pub layers: usize,
    /// The output of these layers: one row for each token.
    pub hidden: ValueId,
    /// Class scores, from the first token of a sequence.
    pub output: ValueId,
}

/// The meaning of the output rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputHead {
    /// The last hidden state of each token.
    #[default]
    Hidden,
    /// Logits of the next token.
    Next,
    /// Logits of the token at the same position (masked LM).
    Token,
    /// Class scores, from the first token of a sequence.
    Class,
    /// Label scores for each token.
    Label,
    /// Two scores for each token: that an answer starts with it, and that it ends with it.
    Span,
}

impl Graph {
    /// Appends a node; returns its output, which has the shape that the operation gives it.
    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let op = op.into();
        let shape = op.operation().output(&self.operands(&self.shapes(inputs)));
        self.values.push(shape);
        let output = self.values.len() - 1;
        self.nodes.push(Node { op, inputs: inputs.to_vec(), output });
        output
    }

    /// Checks that the inputs, weights and outputs of all nodes have the shapes that their operations require.
    pub fn check(&self) -> Result<()> {
        for (index, node) in self.nodes.iter().enumerate() {
            self.check_node(node).map_err(|reason| {
                let message = format!("operation {index}, {}: {reason}", node.op.name());
                Error::new(ErrorKind::Corrupt, "graph", message)
            })?;
        }
        Ok(())
    }

    fn check_node(&self, node: &Node) -> ShapeCheck {
        let (operation, count) = (node.op.operation(), node.inputs.len());
        if !operation.input_counts().contains(&count) {
            return Err(format!("{count} inputs instead of {:?}", operation.input_counts()));
        }
        let shapes = self.shapes(&node.inputs);
        let operands = self.operands(&shapes);
        operation.check(&operands)?;
        let (found, expected) = (self.values[node.output], operation.output(&operands));
        if found == expected {
            Ok(())
        } else {
            Err(format!("the output is {found:?} instead of {expected:?}"))
        }
    }

    fn shapes(&self, values: &[ValueId]) -> Vec<ValueShape> {
        values.iter().map(|&value| self.values[value]).collect()
    }

    fn operands<'a>(&'a self, inputs: &'a [ValueShape]) -> Operands<'a> {
        Operands { inputs, weights: &self.weights, ropes: &self.ropes }
    }

    /// Returns the attention of every layer with a KV cache, in order of layer.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.nodes.iter().filter_map(|node| node.op.downcast_ref::<Attention>())
    }

    /// Returns the recurrent states of a sequence, each with its size in words.
    pub fn states(&self) -> impl Iterator<Item = (usize, usize)> {
        self.nodes.iter().filter_map(|node| {
            if let Some(attention) = node.op.downcast_ref::<LinearAttention>() {
                return Some((attention.state, attention.heads.saturating_mul(attention.head_words())));
            }
            let convolution = node.op.downcast_ref::<CausalConv1d>()?;
            let columns = self.values[node.output].columns;
            Some((convolution.state, convolution.taps.saturating_sub(1) * columns))
        })
    }

    /// Returns the length from which on RoPE frequencies change with the length of the sequence.
    pub fn rope_scaling_length(&self) -> Option<usize> {
        self.ropes.iter().filter_map(|rope| Some(rope.scaling.as_ref()?.length)).min()
    }

    /// Returns the length beyond which all positions of a sequence use different RoPE frequencies.
    pub fn longrope_length(&self) -> Option<usize> {
        let scalings = self.ropes.iter().filter_map(|rope| rope.scaling.as_ref());
        scalings
            .filter(|scaling| matches!(scaling.method, RopeScalingMethod::LongRope(_)))
            .map(|scaling| scaling.length)
            .min()
    }

    /// Returns true if the graph reads the caller's global-attention marks.
    pub fn has_global_attention(&self) -> bool {
        self.attentions().any(|attention| {
            matches!(
                attention.attention_mask,
                AttentionMask::LongformerLocal(_) | AttentionMask::LongformerGlobal
            )
        })
    }

    /// Returns true if the graph contains a convolution over token positions.
    pub fn has_convolution(&self) -> bool {
        let beside = |node: &Node| {
            let of_tokens = |&value: &ValueId| self.values[value].rows == RowKind::Tokens;
            matches!(node.op, Op::Im2col(_)) && node.inputs.iter().all(of_tokens)
        };
        self.nodes.iter().any(beside)
    }

    /// Returns how many input frames a row of the batch is computed from; 0 if rows are tokens.
    pub fn frames_per_row(&self) -> usize {
        let has_features = self.nodes.iter().any(|node| matches!(node.op, Op::InputFeatures(_)));
        let strides = self.nodes.iter().filter_map(|node| node.op.downcast_ref::<Im2col>());
        if has_features { strides.map(|im2col| im2col.stride).fold(1, usize::max) } else { 0 }
    }

    /// Returns the graph without the nodes that only another graph needs (stored cross-attention keys and values).
    pub fn without_cross_attention(&self) -> Self {
        let nodes = self.nodes.iter().filter(|node| !matches!(node.op, Op::StoreCrossKv(_)));
        Self { nodes: nodes.cloned().collect(), ..self.clone() }
    }

    /// Returns the graph with attention limited to a sliding window and attention sinks.
    pub fn with_streaming_window(&self, StreamingWindow { window, sinks }: StreamingWindow) -> Self {
        let mut graph = self.clone();
        for node in &mut graph.nodes {
            if let Op::Attention(attention) = &mut node.op
                && let AttentionMask::Causal(own) = attention.attention_mask
                && own.is_none_or(|own| own > window)
            {
                attention.attention_mask = AttentionMask::StreamingLlm { window, sinks };
            }
        }
        graph
    }

    /// Returns the graph up to the last hidden state, without the head.
    pub fn without_head(&self) -> Self {
        Self { output: self.hidden, head: OutputHead::Hidden, exits: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use crate::op::{Add, Norm, NormKind, RelativePositionBias, Rope, SliceColumns};
    use crate::rope::RopeTable;

    #[test]
    fn bias_tables_have_a_value_for_each_bucket_and_head() {
        for (heads, buckets) in [(1, 0), (1, 32), (2, 8), (4, 1)] {
            for length in 0..=40 {
                let mut b = Builder::new(&|_| false);
                let x = b.embed("token_embd.weight", 10, 8);
                let table = b.vector("attn_rel_b.weight", length);
                let bias =
                    Some(RelativePositionBias { table, buckets, max_distance: 20, bidirectional: true });
                let attention = Attention { bias, ..Attention::causal(heads, 8 / heads) };
                let output = b.attention(x, x, x, attention);
                let found = b.finish(output).check();
                let fits = length % heads == 0 && length >= buckets * heads;
                assert_eq!(found.is_ok(), fits, "{length} values for {buckets} buckets and {heads} heads");
                let names_it = |error: &Error| error.message().contains("attn_rel_b.weight");
                assert!(found.as_ref().err().is_none_or(names_it), "{found:?}");
            }
        }
    }

    /// A graph of one operation on two values of 8 and of 6 columns.
    fn of(op: impl Into<Op>, inputs: &[ValueId]) -> Graph {
        let mut b = Builder::new(&|_| false);
        let (_, narrow) = (b.embed("wide", 10, 8), b.embed("narrow", 10, 6));
        b.vector("norm.weight", 4);
        b.rope_table(RopeTable { frequencies: vec![1.0, 0.5], magnitude: 1.0, scaling: None });
        let mut graph = b.finish(narrow);
        graph.push(op, inputs);
        graph
    }

    #[test]
    fn shapes_that_do_not_fit_are_found() {
        let norm = |group| Norm { kind: NormKind::Rms, weight: 2, bias: None, epsilon: 1e-5, group };
        let slice = |start, columns| SliceColumns { start, columns };
        let rope = |head_size| Rope { rope: 0, head_size };
        let cases = [
            (of(norm(4), &[0]), None),
            (of(norm(4), &[1]), Some("operation 2, Norm: 6 columns are not a multiple of 4")),
            (of(norm(8), &[0]), Some("operation 2, Norm: norm.weight has 4 columns instead of 8")),
            (of(slice(2, 4), &[1]), None),
            (of(slice(3, 4), &[1]), Some("operation 2, SliceColumns: takes 4 columns from 3 of 6")),
            (of(rope(4), &[0]), None),
            (of(rope(2), &[0]), Some("operation 2, Rope: rotates 4 columns of heads of 2")),
            (of(Add, &[0, 0]), None),
            (of(Add, &[0]), Some("operation 2, Add: 1 inputs instead of [2]")),
        ];
        for (graph, expected) in cases {
            let found = graph.check().err().map(|error| error.to_string());
            match expected {
                Some(expected) => assert!(found.is_some_and(|found| found.contains(expected)), "{expected}"),
                None => assert_eq!(found, None),
            }
        }
    }
}
