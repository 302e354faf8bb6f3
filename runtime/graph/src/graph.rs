//! Graphs: nodes in topological order.

use crate::op::Op;
use crate::rope::{Rope, RopeScalingMethod};
use crate::types::{Attention, AttentionMask, RowKind, ValueId, ValueShape, Weight};
use crate::window::StreamingWindow;

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
    pub ropes: Vec<Rope>,
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
    /// Returns the attention of every layer with a KV cache, in order of layer.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.nodes.iter().filter_map(|node| match &node.op {
            Op::Attention(attention) => Some(attention),
            _ => None,
        })
    }

    /// Returns the recurrent states of a sequence, each with its size in words.
    pub fn states(&self) -> impl Iterator<Item = (usize, usize)> {
        self.nodes.iter().filter_map(|node| match &node.op {
            Op::LinearAttention(recurrence) => {
                Some((recurrence.state, recurrence.heads.saturating_mul(recurrence.head_words())))
            }
            Op::CausalConv1d { state, taps, .. } => {
                Some((*state, taps.saturating_sub(1) * self.values[node.output].columns))
            }
            _ => None,
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
            matches!(node.op, Op::Im2col { .. }) && node.inputs.iter().all(of_tokens)
        };
        self.nodes.iter().any(beside)
    }

    /// Returns how many input frames a row of the batch is computed from; 0 if rows are tokens.
    pub fn frames_per_row(&self) -> usize {
        let strides = self.nodes.iter().map(|node| match &node.op {
            Op::Features => 1,
            Op::Im2col { stride, .. } => *stride,
            _ => 0,
        });
        let has_features = self.nodes.iter().any(|node| node.op == Op::Features);
        if has_features { strides.max().unwrap_or(0) } else { 0 }
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
