//! What the graph needs to know of an operation.

use crate::ir::{RowKind, ValueShape, Weight, WeightId};
use crate::rope::RopeTable;

/// What the shape of an operation's output depends on, beside its fields.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The shapes of the inputs.
    pub inputs: &'a [ValueShape],
    /// The weights of the graph.
    pub weights: &'a [Weight],
    /// The RoPE tables of the graph.
    pub ropes: &'a [RopeTable],
}

impl Operands<'_> {
    /// Returns the kind of rows of the first input, or of the batch if there is none.
    pub fn rows(&self) -> RowKind {
        self.inputs.first().map_or(RowKind::Batch, |input| input.rows)
    }

    /// Returns the number of columns of the first input, or 0 if there is none.
    pub fn columns(&self) -> usize {
        self.inputs.first().map_or(0, |input| input.columns)
    }

    /// Returns rows of the same kind as the first input, with `columns` columns.
    pub fn with_columns(&self, columns: usize) -> ValueShape {
        ValueShape { rows: self.rows(), columns }
    }
}

/// What the graph needs to know of an operation: one implementation for each line of the table in
/// [`op`](crate::op).
pub trait Operation {
    /// Calls `change` with each weight that the operation uses.
    fn each_weight(&mut self, _change: &mut dyn FnMut(&mut WeightId)) {}

    /// Returns the shape of the output; that of the first input, if nothing else is said.
    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(operands.columns())
    }
}
