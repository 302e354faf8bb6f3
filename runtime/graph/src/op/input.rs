//! Values that the caller passes in.

use super::{Operands, Operation};
use crate::types::{RowKind, ValueShape, WeightId};

/// The caller's input features, one row per frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFeatures {
    /// Features per frame.
    pub columns: usize,
}

/// Rows computed by another part of the graph, passed in by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalInput {
    /// The number of columns.
    pub columns: usize,
}

impl Operation for InputFeatures {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[0]
    }

    fn output(&self, _: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Frames, columns: self.columns }
    }
}

impl Operation for ExternalInput {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[0]
    }

    fn output(&self, _: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Tokens, columns: self.columns }
    }
}
