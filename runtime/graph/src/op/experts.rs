//! Mixture of experts (MoE): routing, and matmuls of the selected experts.

use super::{Operands, Operation};
use crate::ir::{RowKind, ValueShape, WeightId};

/// MoE routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The number of experts.
    pub experts: usize,
    /// Experts selected per row (top-k).
    pub chosen: usize,
    /// Whether the weights of the selected experts are normalized to a sum of 1.
    pub normalize: bool,
    /// Expert capacity: the maximum number of rows of a sequence that an expert takes in one pass; further rows skip
    /// it. It is counted per pass, as in the reference implementation, so each batch of a sequence that is fed in
    /// several starts anew.
    pub capacity: Option<usize>,
}

/// MoE router. Input: one score for each expert. Output: weights and indices of the selected experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The routing.
    pub routing: Routing,
}

/// MoE dispatch. Inputs: rows, router output. Output: the row of each slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The routing.
    pub routing: Routing,
}

/// MoE expert matmul. Inputs: slots, router output. Multiplies each slot by the matrix of its expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertLinear {
    /// The routing.
    pub routing: Routing,
    /// One matrix for each expert.
    pub weights: Vec<WeightId>,
    /// One vector for each expert, or empty.
    pub biases: Vec<WeightId>,
}

/// MoE combine. Inputs: slots, router output. Output: the weighted sum of each row's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// The routing.
    pub routing: Routing,
}

impl Operation for Route {
    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(2 * self.routing.chosen)
    }
}

impl Operation for Dispatch {
    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Slots(self.routing.chosen), columns: operands.columns() }
    }
}

impl Operation for ExpertLinear {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        self.weights.iter_mut().chain(&mut self.biases).for_each(change);
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.weights.first().map_or(0, |weight| operands.weights[*weight].rows))
    }
}

impl Operation for Combine {
    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Batch, columns: operands.columns() }
    }
}
