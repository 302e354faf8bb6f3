//! The functions of elementwise kernels.

use siskin_device::KernelArgument;

/// A function of one value and a parameter, numbered as in `kernels/elementwise.cu`. The first six are activations,
/// which ignore the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum PointwiseFunction {
    /// x · sigmoid(x).
    Silu = 0,
    /// GELU.
    Gelu = 1,
    /// GELU with tanh approximation.
    GeluTanh = 2,
    /// max(x, 0).
    Relu = 3,
    /// 1 / (1 + exp(−x)).
    Sigmoid = 4,
    /// ELU(x) + 1.
    EluPlusOne = 5,
    /// x times the parameter.
    Scale = 6,
    /// cap · tanh(x / cap), where the parameter is the cap.
    Softcap = 7,
    /// x limited to a magnitude of at most the parameter.
    Clamp = 8,
}

impl PointwiseFunction {
    /// Returns the arguments of a kernel that selects the function.
    pub fn arguments(self, parameter: f32) -> [KernelArgument; 2] {
        [KernelArgument::Int(self as i32), KernelArgument::Float(parameter)]
    }
}
