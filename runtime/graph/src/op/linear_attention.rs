//! Linear attention with a recurrent state, and the convolution and gate before it.

use super::{Operands, Operation, ShapeCheck};
use crate::types::{ValueShape, WeightId};

/// A decay gate between 0 and 1: `exp(−exp(log) · softplus(x + bias))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecayGate {
    /// Per column.
    pub log: WeightId,
    /// Per column.
    pub bias: WeightId,
}

/// Causal conv1d: a weighted sum of each column over the last tokens of the sequence, with zeros before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CausalConv1d {
    /// Index of the state.
    pub state: usize,
    /// Kernel size, the newest token included.
    pub taps: usize,
    /// Weights of each column, the oldest token first.
    pub weight: WeightId,
}

/// Linear attention: each head has a state matrix of constant size, which is updated with the key and value of each
/// token and read with its query.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearAttention {
    /// Index of the state.
    pub state: usize,
    /// The number of heads with a state.
    pub heads: usize,
    /// Query heads; divides `heads`.
    pub query_heads: usize,
    /// Key heads; divides `heads`.
    pub key_heads: usize,
    /// Value heads; divides `heads`.
    pub value_heads: usize,
    /// Columns of a query and of a key.
    pub key_size: usize,
    /// Columns of a value.
    pub value_size: usize,
    /// The update rule of the state.
    pub rule: StateUpdate,
}

/// The update rule of a recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateUpdate {
    /// Linear attention (arXiv:2006.16236): adds `k · vᵀ`; results are divided by the product of the query with the sum
    /// of the keys. Inputs: q, k, v.
    Additive,
    /// The same, bidirectional: the state takes the whole sequence before the first query.
    BidirectionalAdditive,
    /// Gated delta rule: the state decays, then a fraction of its value for the key is replaced.
    /// Inputs: q, k, v, and the decay and the fraction (beta) of each head.
    GatedDelta,
}

/// Columns of a state panel.
pub const STATE_PANEL: usize = 16;

impl LinearAttention {
    /// Returns the columns of a head's state, rounded up to whole panels.
    pub fn state_columns(&self) -> usize {
        let normalizer = usize::from(self.rule != StateUpdate::GatedDelta);
        (self.value_size + normalizer).next_multiple_of(STATE_PANEL)
    }

    /// Returns the number of f32 values of a head's state.
    pub fn head_words(&self) -> usize {
        self.state_columns().saturating_mul(self.key_size)
    }
}

impl Operation for DecayGate {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        [&mut self.log, &mut self.bias].into_iter().for_each(change);
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.weight_has(self.log, operands.columns())?;
        operands.weight_has(self.bias, operands.columns())
    }
}

impl Operation for CausalConv1d {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        change(&mut self.weight);
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.weight_has(self.weight, operands.columns().saturating_mul(self.taps))
    }
}

impl Operation for LinearAttention {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        match self.rule {
            StateUpdate::Additive | StateUpdate::BidirectionalAdditive => &[3],
            StateUpdate::GatedDelta => &[5],
        }
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.input_has(0, self.query_heads.saturating_mul(self.key_size))?;
        operands.input_has(1, self.key_heads.saturating_mul(self.key_size))?;
        operands.input_has(2, self.value_heads.saturating_mul(self.value_size))?;
        (3..operands.inputs.len()).try_for_each(|index| operands.input_has(index, self.heads))
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.heads * self.value_size)
    }
}
