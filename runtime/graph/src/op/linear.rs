//! Matrix multiplication.

use super::{Operands, Operation, ShapeCheck};
use crate::types::{ValueShape, WeightId};

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

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        for &(weight, bias) in &self.parts {
            operands.weight_has(weight, operands.columns())?;
            if let Some(bias) = bias {
                operands.weight_has(bias, operands.weights[weight].rows)?;
            }
        }
        Ok(())
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.parts.iter().map(|(weight, _)| operands.weights[*weight].rows).sum())
    }
}
