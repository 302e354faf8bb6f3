//! The operations of a graph.

use siskin_kernels::functions::{ActivationFunction, GateLimits};

use crate::types::{Attention, NormKind, Recurrence, Routing, WeightId};

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Token embeddings.
    Embed {
        /// V × D.
        table: WeightId,
    },
    /// Segment embeddings.
    EmbedSegment {
        /// Segments × D.
        table: WeightId,
    },
    /// Sinusoidal position embeddings: sines, then cosines of the angles of a RoPE table.
    EmbedSine {
        /// Index into [`Graph::ropes`](crate::Graph::ropes).
        rope: usize,
        /// Added to the position.
        offset: usize,
    },
    /// The caller's input features, one row per frame.
    Features,
    /// Rows computed by another part of the graph, passed in by the caller.
    ExternalInput,
    /// Concatenates nearby rows of a sequence; zeros beyond its ends.
    Im2col {
        /// Distance of each to the input row of the output row.
        offsets: Vec<isize>,
        /// Input rows per output row.
        stride: usize,
    },
    /// Learned position embeddings.
    EmbedPosition {
        /// Positions × D.
        table: WeightId,
        /// Added to the position before the lookup.
        offset: usize,
    },
    /// Normalizes each group of `group` columns.
    Norm {
        /// The kind of the norm.
        kind: NormKind,
        /// Scale per column of the group (or of the whole row if it is longer).
        weight: WeightId,
        /// Bias per column.
        bias: Option<WeightId>,
        /// Added to the variance.
        epsilon: f32,
        /// Columns per group.
        group: usize,
    },
    /// Multiplies by one or more matrices; the outputs are concatenated column-wise.
    Linear {
        /// The matrices and biases.
        parts: Vec<(WeightId, Option<WeightId>)>,
    },
    /// MoE router. Input: one score for each expert. Output: weights and indices of the selected experts.
    Route(Routing),
    /// MoE dispatch. Inputs: rows, router output. Output: the row of each slot.
    Dispatch(Routing),
    /// MoE expert matmul. Inputs: slots, router output. Multiplies each slot by the matrix of its expert.
    ExpertLinear {
        /// The routing.
        routing: Routing,
        /// One matrix for each expert.
        weights: Vec<WeightId>,
        /// One vector for each expert, or empty.
        biases: Vec<WeightId>,
    },
    /// MoE combine. Inputs: slots, router output. Output: the weighted sum of each row's slots.
    Combine(Routing),
    /// A range of columns.
    SliceColumns {
        /// The first column.
        start: usize,
    },
    /// RoPE on each head of `head_size` columns.
    Rope {
        /// Index into [`Graph::ropes`](crate::Graph::ropes).
        rope: usize,
        /// Columns per head.
        head_size: usize,
    },
    /// Inputs q, k, v: stores k and v in the KV cache, then attends. With cross-attention only q: keys and values are
    /// already stored. With the mask of Longformer's global tokens a fourth input: the output of all
    /// other rows, which no other node may read.
    Attention(Attention),
    /// Inputs k, v: stores them for the cross-attention of another graph.
    StoreCrossKv(Attention),
    /// An element-wise activation.
    Activate(ActivationFunction),
    /// Inputs gate, up: `activation(gate) · up`.
    Gate(ActivationFunction),
    /// Inputs gate, up: `g · sigmoid(slope · g) · (u + 1)`, with the gate clamped from above and the up projection to ± the
    /// limit.
    GateLimited(GateLimits),
    /// Repeats every column this many times (`repeat_interleave`).
    RepeatColumns(usize),
    /// Scales each group of `group` columns to unit L2 norm, times a factor.
    L2Normalize {
        /// Columns per group.
        group: usize,
        /// Added to the squared norm.
        epsilon: f32,
        /// The resulting norm.
        factor: f32,
    },
    /// A decay gate between 0 and 1: `exp(−exp(log) · softplus(x + bias))`.
    DecayGate {
        /// Per column.
        log: WeightId,
        /// Per column.
        bias: WeightId,
    },
    /// Causal conv1d: a weighted sum of each column over the last tokens of the sequence, with zeros before the first.
    CausalConv1d {
        /// Index of the state.
        state: usize,
        /// Kernel size, the newest token included.
        taps: usize,
        /// Weights of each column, the oldest token first.
        weight: WeightId,
    },
    /// Linear attention with a recurrent state of constant size.
    LinearAttention(Recurrence),
    /// The sum of two values.
    Add,
    /// Every element times a factor of its column, plus a bias of its column, rounded once (fused multiply-add).
    Affine {
        /// Factor per column.
        weight: WeightId,
        /// Bias per column.
        bias: WeightId,
    },
    /// Every element times a constant.
    Scale(f32),
    /// Softcap: `cap · tanh(x / cap)`.
    Softcap(f32),
    /// Clamps every element to ± the constant.
    Clamp(f32),
    /// Keeps only the output rows.
    SelectOutputs,
}

impl Op {
    /// Returns the name, without parameters.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "Embed",
            Self::EmbedSegment { .. } => "EmbedSegment",
            Self::EmbedSine { .. } => "EmbedSine",
            Self::Features => "Features",
            Self::ExternalInput => "ExternalInput",
            Self::Im2col { .. } => "Im2col",
            Self::EmbedPosition { .. } => "EmbedPosition",
            Self::Norm { .. } => "Norm",
            Self::Linear { .. } => "Linear",
            Self::Route(_) => "Route",
            Self::Dispatch(_) => "Dispatch",
            Self::ExpertLinear { .. } => "ExpertLinear",
            Self::Combine(_) => "Combine",
            Self::SliceColumns { .. } => "SliceColumns",
            Self::Rope { .. } => "Rope",
            Self::Attention(_) => "Attention",
            Self::StoreCrossKv(_) => "StoreCrossKv",
            Self::Activate(_) => "Activate",
            Self::Gate(_) => "Gate",
            Self::GateLimited(_) => "GateLimited",
            Self::RepeatColumns(_) => "RepeatColumns",
            Self::L2Normalize { .. } => "L2Normalize",
            Self::DecayGate { .. } => "DecayGate",
            Self::CausalConv1d { .. } => "CausalConv1d",
            Self::LinearAttention(_) => "LinearAttention",
            Self::Add => "Add",
            Self::Affine { .. } => "Affine",
            Self::Scale(_) => "Scale",
            Self::Softcap(_) => "Softcap",
            Self::Clamp(_) => "Clamp",
            Self::SelectOutputs => "SelectOutputs",
        }
    }
}
