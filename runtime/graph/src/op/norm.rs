//! Normalization.

use super::{Operands, Operation, ShapeCheck};
use crate::types::WeightId;

/// The kind of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// RMSNorm: divides by the root mean square.
    Rms,
    /// LayerNorm: subtracts the mean, then divides by the standard deviation.
    Layer,
}

/// Normalizes each group of `group` columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The kind of the norm.
    pub kind: NormKind,
    /// Scale per column of the group (or of the whole row if it is longer).
    pub weight: WeightId,
    /// Bias per column.
    pub bias: Option<WeightId>,
    /// Added to the variance.
    pub epsilon: f32,
    /// Columns per group.
    pub group: usize,
}

/// Scales each group of `group` columns to unit L2 norm, times a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct L2Normalize {
    /// Columns per group.
    pub group: usize,
    /// Added to the squared norm.
    pub epsilon: f32,
    /// The resulting norm.
    pub factor: f32,
}

impl Operation for Norm {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        change(&mut self.weight);
        self.bias.iter_mut().for_each(change);
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.has_whole_groups(self.group)?;
        let whole_row = operands.weights[self.weight].columns == operands.columns();
        let columns = if whole_row { operands.columns() } else { self.group };
        [Some(self.weight), self.bias]
            .into_iter()
            .flatten()
            .try_for_each(|weight| operands.weight_has(weight, columns))
    }
}

impl Operation for L2Normalize {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.has_whole_groups(self.group)
    }
}
