//! The functions of elementwise kernels.

use siskin_device::KernelArgument;
use siskin_kernels::functions::ActivationFunction;

/// A function of one value, as `kernels/elementwise.cu` numbers it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointwiseFunction {
    /// An activation function.
    Activation(ActivationFunction),
    /// x times the factor.
    Scale(f32),
    /// cap · tanh(x / cap).
    Softcap(f32),
    /// x limited to this magnitude.
    Clamp(f32),
}

impl PointwiseFunction {
    /// Returns the number by which kernels select the function.
    pub fn code(self) -> i32 {
        match self {
            Self::Activation(ActivationFunction::Silu) => 0,
            Self::Activation(ActivationFunction::Gelu) => 1,
            Self::Activation(ActivationFunction::GeluTanh) => 2,
            Self::Activation(ActivationFunction::Relu) => 3,
            Self::Activation(ActivationFunction::Sigmoid) => 4,
            Self::Activation(ActivationFunction::EluPlusOne) => 5,
            Self::Scale(_) => 6,
            Self::Softcap(_) => 7,
            Self::Clamp(_) => 8,
        }
    }

    /// Returns the arguments of a kernel that selects the function: its number, and its parameter, which activation
    /// functions ignore.
    pub fn arguments(self) -> [KernelArgument; 2] {
        let parameter = match self {
            Self::Activation(_) => 0.0,
            Self::Scale(parameter) | Self::Softcap(parameter) | Self::Clamp(parameter) => parameter,
        };
        [KernelArgument::Int(self.code()), KernelArgument::Float(parameter)]
    }
}
