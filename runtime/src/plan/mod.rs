//! From a graph to steps: which buffers, which products, in which order. Plain data, printable.

mod arena;
mod arena_allocator;
mod build;
mod fusion;
mod print;
mod weights;

pub(crate) use arena::{Arena, Room};
pub(crate) use weights::{Bound, Weights};

use crate::graph::{ActivationKind, Attention, Limits, NormKind, Recurrence, Routing, Rows, WeightId};
use siskin_kernels::ops::elementwise::Map;
use siskin_kernels::panel::InputKind;

/// A run of columns of a buffer in the arena. Row r begins at `offset + r · stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Words from the start of the arena to the first column of row 0.
    pub offset: usize,
    /// Words from row to row.
    pub stride: usize,
    /// Columns in view.
    pub columns: usize,
}

/// What is done to one row after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowOp {
    /// Cosines and sines of the row's position.
    Turns { rope: usize, to: View },
    /// The row of a table for the row's token.
    Embed { table: WeightId, to: View },
    /// The row of a table for the row's segment.
    EmbedSegment { table: WeightId, to: View },
    /// Sines, then cosines of the row's position.
    EmbedSine { rope: usize, offset: usize, to: View },
    /// A frame of the caller's features.
    Features { to: View },
    /// A row that another part of the graph gave.
    Carried { to: View },
    /// Rows of `rows` near the one that goes with this, side by side.
    Neighbours { offsets: Vec<isize>, stride: usize, rows: [Rows; 2], from: View, to: View },
    /// The row of a table for the row's position.
    EmbedPosition { table: WeightId, offset: usize, to: View },
    /// The row of the batch whose output is wanted.
    Pick { from: View, to: View },
    /// See [`siskin_kernels::ops::norm`].
    Norm { kind: NormKind, weight: WeightId, bias: Option<WeightId>, epsilon: f32, from: View, to: View },
    /// See [`siskin_kernels::ops::rope`].
    Rope { turns: View, head_size: usize, from: View, to: View },
    /// See [`siskin_kernels::ops::activation`].
    Activate { kind: ActivationKind, from: View, to: View },
    /// The same, times another row.
    Gate { kind: ActivationKind, gate: View, up: View, to: View },
    /// The same with limits.
    GateLimited { limits: Limits, gate: View, up: View, to: View },
    /// Every column as many times.
    Repeat { times: usize, from: View, to: View },
    /// Runs of columns brought to one length.
    Unit { group: usize, epsilon: f32, factor: f32, from: View, to: View },
    /// Factors between zero and one.
    Decay { log: WeightId, bias: WeightId, from: View, to: View },
    /// The experts that a row chooses.
    Route { routing: Routing, from: View, to: View },
    /// The row of a slot.
    Dispatch { routing: Routing, slots: View, from: View, to: View },
    /// The weighted sum of a row's slots.
    Combine { routing: Routing, slots: View, routed: View, from: View, to: View },
    /// The sum of two rows.
    Add { a: View, b: View, to: View },
    /// See [`siskin_kernels::ops::elementwise`].
    Affine { weight: WeightId, bias: WeightId, from: View, to: View },
    /// See [`siskin_kernels::ops::elementwise`].
    Map { map: Map, from: View, to: View },
    /// See [`siskin_kernels::ops::quantise`]; `to` counts words.
    Quantise { from: View, to: View },
    /// The same for row types.
    QuantiseRotated { from: View, to: View },
}

/// Words that the slots of `rows` rows take: where each expert's begin and the last one's end, how many rows of a
/// sequence chose each, the slot of each choice, the row of each slot.
pub(crate) const fn slot_words(routing: &Routing, rows: usize) -> usize {
    2 * routing.experts + 1 + 2 * rows * routing.chosen
}

/// A matrix, or some rows of it, and where their product goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProductPart {
    pub weight: WeightId,
    pub bias: Option<WeightId>,
    /// The first row, which begins a panel; 0 where the products are not gated.
    pub first: usize,
    pub to: View,
}

/// What becomes of products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum After {
    /// They are what is wanted.
    Nothing,
    /// The sum with what is already there.
    Plus(View),
    /// See [`siskin_kernels::ops::activation`].
    Activate(ActivationKind),
    /// The activated products of the first of two parts times those of the second, both of as many rows. They go to the
    /// same place.
    Gate(ActivationKind),
}

/// A piece of work after which all threads meet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Operations on each row by itself.
    Rows { rows: Rows, ops: Vec<RowOp> },
    /// Products of the same rows with some matrices. `input` is rows of the kind that the matrices take.
    Products { rows: Rows, input: View, kind: InputKind, parts: Vec<ProductPart>, after: After },
    /// Every choice of an expert gets its slot; `to` counts words, in one row.
    Arrange { routing: Routing, routed: View, to: View },
    /// Products of each expert's slots with its matrix.
    ExpertProducts {
        routing: Routing,
        slots: View,
        input: View,
        kind: InputKind,
        parts: Vec<(usize, ProductPart)>,
    },
    /// Keys and values go to the cache.
    Append { attention: Attention, keys: View, values: View },
    /// Queries attend.
    Attend { attention: Attention, queries: View, to: View },
    /// Sums of each column over the last tokens of its sequence.
    Convolve { state: usize, taps: usize, weight: WeightId, from: View, to: View },
    /// Tokens go through the state of their sequence, one after the other.
    Recur { recurrence: Recurrence, inputs: Vec<View>, to: View },
}

/// Everything there is to do for one batch.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    pub ropes: Vec<crate::graph::Rope>,
    /// Words of the arena.
    pub words: usize,
    /// Where the logits of the wanted rows are.
    pub output: View,
    /// The most rows of a batch.
    pub batch: usize,
    /// The most wanted rows of a batch.
    pub wanted: usize,
    /// Frames that a row is made of; 0 where it is made of a token.
    pub frames_per_row: usize,
}

impl Plan {
    /// The most rows of a kind.
    pub(crate) fn row_count(&self, rows: Rows) -> usize {
        row_count(rows, self.batch, self.wanted, self.frames_per_row)
    }
}

fn row_count(rows: Rows, batch: usize, wanted: usize, frames: usize) -> usize {
    match rows {
        Rows::Batch => batch,
        Rows::Outputs => wanted,
        Rows::Frames => batch.saturating_mul(frames),
        Rows::Slots(chosen) => batch.saturating_mul(chosen),
    }
}
