//! The functions that operations apply to each element: named here, computed in `ops`.

/// The activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationFunction {
    /// x · sigmoid(x).
    Silu,
    /// x · (1 + erf(x/√2)) / 2.
    Gelu,
    /// x · sigmoid(2·√(2/π)·(x + 0.044715·x³)), the tanh approximation of the above.
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e^−x).
    Sigmoid,
    /// x + 1 above zero, e^x below.
    EluPlusOne,
}

impl ActivationFunction {
    /// All activation functions.
    pub const ALL: &[Self] =
        &[Self::Silu, Self::Gelu, Self::GeluTanh, Self::Relu, Self::Sigmoid, Self::EluPlusOne];
}

/// Limits of a clamped gate: `g · sigmoid(slope · g) · (u + 1)`, with g the gate clamped to at most `limit`
/// and u the up projection clamped to ± `limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateLimits {
    /// Upper bound of the gate, and bound of the magnitude of the up projection.
    pub limit: f32,
    /// Factor in the sigmoid.
    pub slope: f32,
}
