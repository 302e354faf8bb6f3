//! Values and weights of a graph.

/// Index of a [`ValueShape`] in [`Graph::values`](crate::Graph::values).
pub type ValueId = usize;
/// Index of a [`Weight`] in [`Graph::weights`](crate::Graph::weights).
pub type WeightId = usize;

/// The kind of rows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// One for each token of the batch.
    Tokens,
    /// One for each token whose output was requested.
    Outputs,
    /// One for each frame of the features that the batch's rows are computed from.
    Frames,
    /// This many for each token of the batch: one for each selected expert.
    Slots(usize),
}

/// The numbers of rows of a batch, or of the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// Tokens.
    pub tokens: usize,
    /// Tokens whose output is requested.
    pub outputs: usize,
    /// Frames of the features.
    pub frames: usize,
}

impl RowCounts {
    /// Returns the number of rows of a kind, saturating.
    pub fn of(&self, rows: RowKind) -> usize {
        match rows {
            RowKind::Tokens => self.tokens,
            RowKind::Outputs => self.outputs,
            RowKind::Frames => self.frames,
            RowKind::Slots(top_k) => self.tokens.saturating_mul(top_k),
        }
    }
}

/// The shape of a value: its kind of rows and its number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueShape {
    /// The kind of rows.
    pub rows: RowKind,
    /// The number of columns.
    pub columns: usize,
}

/// Which adapter applies to the tokens of a batch entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterSlot(pub u16);

impl AdapterSlot {
    /// The adapter that the model was opened with, or none.
    pub const MODEL: Self = Self(0);
}

/// How a weight is stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightRole {
    /// A matrix in packed panels: rows are outputs (or table entries), columns are inputs.
    Matrix,
    /// f32 values, one row.
    Vector,
}

/// A tensor that the graph needs from the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Weight {
    /// The name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Output rows; 1 for a vector.
    pub rows: usize,
    /// Input columns, or the length of a vector.
    pub columns: usize,
    /// Packed matrix or plain vector.
    pub role: WeightRole,
}
