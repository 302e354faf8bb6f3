//! What the graph needs to know of an operation.

use crate::rope::RopeTable;
use crate::types::{RowKind, ValueShape, Weight, WeightId};

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
        self.inputs.first().map_or(RowKind::Tokens, |input| input.rows)
    }

    /// Returns the number of columns of the first input, or 0 if there is none.
    pub fn columns(&self) -> usize {
        self.inputs.first().map_or(0, |input| input.columns)
    }

    /// Returns rows of the same kind as the first input, with `columns` columns.
    pub fn with_columns(&self, columns: usize) -> ValueShape {
        ValueShape { rows: self.rows(), columns }
    }

    /// Checks the number of columns of an input.
    pub fn input_has(&self, index: usize, columns: usize) -> ShapeCheck {
        let found = self.inputs[index].columns;
        check(found == columns, || format!("input {index} has {found} columns instead of {columns}"))
    }

    /// Checks the number of columns of a weight, or the length of a vector.
    pub fn weight_has(&self, weight: WeightId, columns: usize) -> ShapeCheck {
        let Weight { name, columns: found, .. } = &self.weights[weight];
        check(*found == columns, || format!("{name} has {found} columns instead of {columns}"))
    }

    /// Checks that the first two inputs have the same shape.
    pub fn inputs_are_alike(&self) -> ShapeCheck {
        let [a, b] = [self.inputs[0], self.inputs[1]];
        check(a == b, || format!("the inputs have the shapes {a:?} and {b:?}"))
    }

    /// Checks that the columns of the first input are whole groups.
    pub fn has_whole_groups(&self, group: usize) -> ShapeCheck {
        let columns = self.columns();
        let whole = group > 0 && columns.is_multiple_of(group);
        check(whole, || format!("{columns} columns are not a multiple of {group}"))
    }
}

/// The reason why shapes do not fit, as the end of a sentence about the operation.
pub type ShapeCheck = Result<(), String>;

/// Returns `message` as an error if the condition is false.
pub(super) fn check(condition: bool, message: impl FnOnce() -> String) -> ShapeCheck {
    if condition { Ok(()) } else { Err(message()) }
}

/// What the graph needs to know of an operation: one implementation for each line of the table in
/// [`op`](crate::op).
pub trait Operation {
    /// Calls `change` with each weight that the operation uses. There is no default: adapters, joined graphs and the
    /// trainer find weights only here, so an operation without any says so.
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId));

    /// Returns the numbers of inputs that the operation may have.
    fn input_counts(&self) -> &'static [usize] {
        &[1]
    }

    /// Checks the shapes of inputs, of which there are as many as [`Operation::input_counts`] allows, and of weights.
    fn check(&self, _operands: &Operands<'_>) -> ShapeCheck {
        Ok(())
    }

    /// Returns the shape of the output; by default that of the first input.
    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(operands.columns())
    }
}
