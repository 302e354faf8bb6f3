//! Matrix multiplication.

use super::{Operands, Operation};
use crate::ir::{ValueShape, WeightId};

/// Multiplies by one or more matrices; the outputs are concatenated column-wise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// The matrices and biases.
    pub parts: Vec<(WeightId, Option<WeightId>)>,
}

impl Operation for Linear {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        for (weight, bias) in &mut self.parts {
            change(weight);
            bias.iter_mut().for_each(&mut *change);
        }
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.parts.iter().map(|(weight, _)| operands.weights[*weight].rows).sum())
    }
}
