//! Element-wise operations.

use super::{Operands, Operation, ShapeCheck};
use crate::types::WeightId;
use siskin_kernels::functions::{ActivationFunction, GateLimits};

/// An element-wise activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activate {
    /// The activation.
    pub function: ActivationFunction,
}

/// Inputs gate, up: `activation(gate) · up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The activation.
    pub function: ActivationFunction,
}

/// Inputs gate, up: `g · sigmoid(slope · g) · (u + 1)`, with the gate clamped from above and the up projection to ± the
/// limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClampedGate {
    /// The slope and the limit.
    pub limits: GateLimits,
}

/// The sum of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add;

/// Every element times a factor of its column, plus a bias of its column, rounded once (fused multiply-add).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// Factor per column.
    pub weight: WeightId,
    /// Bias per column.
    pub bias: WeightId,
}

/// Every element times a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The constant.
    pub factor: f32,
}

/// Softcap: `cap · tanh(x / cap)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softcap {
    /// The cap.
    pub cap: f32,
}

/// Clamps every element to ± the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clamp {
    /// The limit.
    pub limit: f32,
}

impl Operation for Activate {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}
}

impl Operation for Gate {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.inputs_are_alike()
    }
}

impl Operation for ClampedGate {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.inputs_are_alike()
    }
}

impl Operation for Add {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.inputs_are_alike()
    }
}
impl Operation for Scale {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}
}

impl Operation for Softcap {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}
}

impl Operation for Clamp {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}
}

impl Operation for Affine {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        [&mut self.weight, &mut self.bias].into_iter().for_each(change);
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.weight_has(self.weight, operands.columns())?;
        operands.weight_has(self.bias, operands.columns())
    }
}
