//! Operations that only move rows and columns.

use super::operation::check;
use super::{Operands, Operation, ShapeCheck};
use crate::types::{RowKind, ValueShape, WeightId};

/// Concatenates nearby rows of a sequence; zeros beyond its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Im2col {
    /// Distance of each to the input row of the output row.
    pub offsets: Vec<isize>,
    /// Input rows per output row.
    pub stride: usize,
}

/// A range of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceColumns {
    /// The first column.
    pub start: usize,
    /// The number of columns.
    pub columns: usize,
}

/// Repeats every column (`repeat_interleave`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatColumns {
    /// Copies of each column.
    pub times: usize,
}

/// Keeps only the output rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectOutputs;

impl Operation for Im2col {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        let columns = self.offsets.len() * operands.columns();
        match self.stride {
            2.. => ValueShape { rows: RowKind::Tokens, columns },
            _ => operands.with_columns(columns),
        }
    }
}

impl Operation for SliceColumns {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        let (start, columns, given) = (self.start, self.columns, operands.columns());
        let inside = start.checked_add(columns).is_some_and(|end| end <= given);
        check(inside, || format!("takes {columns} columns from {start} of {given}"))
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.columns)
    }
}

impl Operation for RepeatColumns {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(operands.columns() * self.times)
    }
}

impl Operation for SelectOutputs {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Outputs, columns: operands.columns() }
    }
}
