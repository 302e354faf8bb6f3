//! Lowers a graph to a plan: buffers, fused matmuls and the order of steps. Plain data, printable, which the CPU backend
//! and backends in other crates interpret.

mod buffers;
mod build;
mod cached;
mod lora;
mod matmul;
mod print;
mod row_wise;

use crate::Weights;
use crate::moe_routing::slot_words;
use siskin_graph::op::MultiLora;
use siskin_graph::{
    ActivationFunction, AdapterSlot, Attention, GateLimits, LinearAttention, NormKind, Routing, RowCounts,
    RowKind, WeightId,
};
use siskin_kernels::ops::elementwise::ElementwiseFunction;
use siskin_kernels::panel::InputKind;

/// A range of columns of a buffer in the arena. Row r begins at `offset + r · stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferView {
    /// Words from the start of the arena to the first column of row 0.
    pub offset: usize,
    /// Words from one row to the next.
    pub stride: usize,
    /// The number of columns.
    pub columns: usize,
}

/// A row-wise operation.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOp {
    /// Computes the RoPE cosines and sines of the row's position.
    RopeCosSin { rope: usize, to: BufferView },
    /// Looks up the token embedding.
    Embed { table: WeightId, to: BufferView },
    /// Looks up the segment embedding.
    EmbedSegment { table: WeightId, to: BufferView },
    /// Computes the sinusoidal position embedding: sines, then cosines.
    SinusoidalPositions { rope: usize, offset: usize, to: BufferView },
    /// Copies a frame of the input features.
    InputFeatures { to: BufferView },
    /// Copies a row that was computed by another part of the graph.
    ExternalInput { to: BufferView },
    /// Im2col: concatenates neighboring rows; `rows` are the row kinds of input and output.
    Im2col { offsets: Vec<isize>, stride: usize, rows: [RowKind; 2], from: BufferView, to: BufferView },
    /// Looks up the position embedding.
    EmbedPosition { table: WeightId, offset: usize, to: BufferView },
    /// Copies an output row from the batch.
    SelectOutputs { from: BufferView, to: BufferView },
    /// See [`siskin_kernels::ops::norm`].
    Norm {
        kind: NormKind,
        weight: WeightId,
        bias: Option<WeightId>,
        epsilon: f32,
        from: BufferView,
        to: BufferView,
    },
    /// See [`siskin_kernels::ops::rope`].
    Rope { cos_sin: BufferView, head_size: usize, from: BufferView, to: BufferView },
    /// See [`siskin_kernels::ops::activation`].
    Activate { function: ActivationFunction, from: BufferView, to: BufferView },
    /// The activation of `gate`, times `up`.
    Gate { function: ActivationFunction, gate: BufferView, up: BufferView, to: BufferView },
    /// The same, clamped.
    ClampedGate { limits: GateLimits, gate: BufferView, up: BufferView, to: BufferView },
    /// Repeats every column (`repeat_interleave`).
    RepeatColumns { times: usize, from: BufferView, to: BufferView },
    /// L2-normalizes groups of columns.
    L2Normalize { group: usize, epsilon: f32, factor: f32, from: BufferView, to: BufferView },
    /// Computes decay gates between 0 and 1.
    DecayGate { log: WeightId, bias: WeightId, from: BufferView, to: BufferView },
    /// MoE router: selects experts for a row.
    Route { routing: Routing, from: BufferView, to: BufferView },
    /// MoE dispatch: copies a row to its slot.
    Dispatch { routing: Routing, slots: BufferView, from: BufferView, to: BufferView },
    /// MoE combine: the weighted sum of a row's slots.
    Combine { routing: Routing, slots: BufferView, routed: BufferView, from: BufferView, to: BufferView },
    /// Adds two rows.
    Add { a: BufferView, b: BufferView, to: BufferView },
    /// See [`siskin_kernels::ops::elementwise`].
    Affine { weight: WeightId, bias: WeightId, from: BufferView, to: BufferView },
    /// See [`siskin_kernels::ops::elementwise`].
    Elementwise { function: ElementwiseFunction, from: BufferView, to: BufferView },
    /// Adds the bias of a product and the product of the row's adapter, held in `delta`, and scales the sum; `delta` is
    /// overwritten.
    LoraSum { lora: MultiLora, rows: RowKind, product: BufferView, delta: BufferView, to: BufferView },
    /// Quantizes to int8, see [`siskin_kernels::ops::quantize`]; `to` counts words.
    Quantize { from: BufferView, to: BufferView },
    /// The same for row types, after the Hadamard rotation.
    QuantizeRotated { from: BufferView, to: BufferView },
}

/// A matrix, or a range of its rows, and where its outputs go.
#[derive(Clone, Debug, PartialEq)]
pub struct MatmulPart {
    pub weight: WeightId,
    pub bias: Option<WeightId>,
    /// The first row, which begins a panel; 0 unless gate and up are one matrix.
    pub first: usize,
    pub to: BufferView,
}

/// The epilogue of a matmul.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Epilogue {
    /// None.
    Nothing,
    /// Residual: adds a view.
    Plus(BufferView),
    /// See [`siskin_kernels::ops::activation`].
    Activate(ActivationFunction),
    /// Gated MLP: the activated outputs of the first of two parts times those of the second; both have the same number
    /// of rows and the same destination.
    Gate(ActivationFunction),
}

/// A parallel step; all workers synchronize at its end.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanStep {
    /// Row-wise operations.
    Rows { rows: RowKind, ops: Vec<RowOp> },
    /// Matmuls of the same rows with some matrices. `input` has the input kind of these matrices.
    Linear { rows: RowKind, input: BufferView, kind: InputKind, parts: Vec<MatmulPart>, after: Epilogue },
    /// Assigns an MoE slot to every selected expert of every row; `to` counts words, in one row.
    Arrange { routing: Routing, routed: BufferView, to: BufferView },
    /// Multiplies the slots of each expert by its matrix.
    ExpertLinear {
        routing: Routing,
        slots: BufferView,
        input: BufferView,
        kind: InputKind,
        parts: Vec<(usize, MatmulPart)>,
    },
    /// Multiplies the rows of each adapter by its matrix; other rows are left as they are.
    LoraLinear {
        rows: RowKind,
        input: BufferView,
        parts: Vec<(AdapterSlot, MatmulPart)>,
        residual: Option<BufferView>,
    },
    /// Appends keys and values to the KV cache.
    StoreKv { attention: Attention, keys: BufferView, values: BufferView },
    /// Attention.
    Attention { attention: Attention, queries: BufferView, to: BufferView },
    /// Causal conv1d of each column over the last tokens of its sequence.
    CausalConv1d { state: usize, taps: usize, weight: WeightId, from: BufferView, to: BufferView },
    /// Linear attention: updates the recurrent state of each sequence, token by token.
    LinearAttention { attention: LinearAttention, inputs: Vec<BufferView>, to: BufferView },
}

/// Everything to execute for one batch.
#[derive(Clone, Debug)]
pub struct Plan {
    pub steps: Vec<PlanStep>,
    pub ropes: Vec<siskin_graph::RopeTable>,
    /// Size of the arena in words.
    pub words: usize,
    /// The logits (or other outputs) of the output rows.
    pub output: BufferView,
    /// The maximum numbers of rows in a batch.
    pub max_rows: RowCounts,
}

impl Plan {
    /// Returns the maximum number of rows of a kind.
    pub fn row_count(&self, rows: RowKind) -> usize {
        self.max_rows.of(rows)
    }
}
