//! Mixture of experts (MoE): routing, and matmuls of the selected experts.

use super::operation::check;
use super::{Operands, Operation, ShapeCheck};
use crate::types::{RowKind, ValueShape, WeightId};

/// MoE routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The number of experts.
    pub experts: usize,
    /// Experts selected per row (top-k).
    pub top_k: usize,
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
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        let Routing { experts, top_k, .. } = self.routing;
        check(top_k <= experts, || format!("selects {top_k} of {experts} experts"))?;
        operands.input_has(0, experts)
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(2 * self.routing.top_k)
    }
}

impl Operation for Dispatch {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.input_has(1, 2 * self.routing.top_k)
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Slots(self.routing.top_k), columns: operands.columns() }
    }
}

impl Operation for ExpertLinear {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        self.weights.iter_mut().chain(&mut self.biases).for_each(change);
    }

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        let (experts, given) = (self.routing.experts, self.weights.len());
        check(given == experts, || format!("{given} matrices for {experts} experts"))?;
        operands.input_has(1, 2 * self.routing.top_k)?;
        self.weights.iter().try_for_each(|&weight| operands.weight_has(weight, operands.columns()))?;
        let mut biases = self.biases.iter().zip(&self.weights);
        biases.try_for_each(|(&bias, &weight)| operands.weight_has(bias, operands.weights[weight].rows))
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.weights.first().map_or(0, |weight| operands.weights[*weight].rows))
    }
}

impl Operation for Combine {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.input_has(1, 2 * self.routing.top_k)
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        ValueShape { rows: RowKind::Tokens, columns: operands.columns() }
    }
}
