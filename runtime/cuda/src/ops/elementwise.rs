//! Elementwise functions, sums, and per-column affine transforms.

use siskin_device::{DevicePtr, KernelArgument};
use siskin_graph::op::{Activate, Add, Affine, Clamp, ClampedGate, Gate, Scale, Softcap};
use siskin_graph::{ActivationFunction, GateLimits};

use super::{CudaForward, Destination, OpCall, OpTensors};
use crate::PointwiseFunction;
use crate::command_builder::{CommandBuilder, flag, int};

/// Returns the arguments for the places of inputs and output.
fn places(tensors: OpTensors<'_>) -> Vec<KernelArgument> {
    tensors.inputs.iter().chain([&tensors.out]).map(|&place| KernelArgument::Ptr(place)).collect()
}

macro_rules! unary {
    ($($operation:ident => $function:expr,)*) => {$(
        impl From<$operation> for PointwiseFunction {
            fn from(operation: $operation) -> Self {
                $function(operation)
            }
        }

        impl CudaForward for $operation {
            fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
                let function = PointwiseFunction::from(*self).arguments();
                let arguments = [&function[..], &places(tensors)].concat();
                work.commands.elementwise("activate", call.count(), &arguments);
            }
        }
    )*};
}

unary! {
    Activate => |Activate { function }| Self::Activation(function),
    Scale => |Scale { factor }| Self::Scale(factor),
    Softcap => |Softcap { cap }| Self::Softcap(cap),
    Clamp => |Clamp { limit }| Self::Clamp(limit),
}

/// Returns the first arguments of a gate kernel: function, limit and slope.
fn gate_arguments(
    function: ActivationFunction,
    GateLimits { limit, slope }: GateLimits,
) -> [KernelArgument; 3] {
    let function = KernelArgument::Int(PointwiseFunction::Activation(function).code());
    [function, KernelArgument::Float(limit), KernelArgument::Float(slope)]
}

/// An operation that multiplies a function of its first input by its second.
pub trait GateFunction {
    /// Returns the first arguments of a gate kernel: function, limit and slope.
    fn gate_arguments(&self) -> [KernelArgument; 3];
}

impl GateFunction for Gate {
    fn gate_arguments(&self) -> [KernelArgument; 3] {
        gate_arguments(self.function, GateLimits { limit: 0.0, slope: 0.0 })
    }
}

impl GateFunction for ClampedGate {
    fn gate_arguments(&self) -> [KernelArgument; 3] {
        gate_arguments(ActivationFunction::Silu, self.limits)
    }
}

fn gate(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, op: &dyn GateFunction, tensors: OpTensors<'_>) {
    let arguments = [&op.gate_arguments()[..], &places(tensors)].concat();
    work.commands.elementwise("gate", call.count(), &arguments);
}

impl CudaForward for Gate {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        gate(work, call, self, tensors);
    }
}

impl CudaForward for ClampedGate {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        gate(work, call, self, tensors);
    }
}

/// The tensors of a per-column affine transform.
#[derive(Clone, Copy, Debug)]
pub struct AffinePtrs {
    /// The input.
    pub x: DevicePtr,
    /// A factor per column, as f32.
    pub weight: DevicePtr,
    /// A bias per column, as f32; 0: none.
    pub bias: DevicePtr,
    /// The output.
    pub to: Destination,
}

/// Appends a per-column affine transform.
pub fn affine(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: AffinePtrs) {
    let AffinePtrs { x, weight, bias, to } = ptrs;
    let places = [x, weight, bias, to.ptr].map(KernelArgument::Ptr);
    let numbers = [flag(to.accumulate), int(call.rows), int(call.columns())];
    work.commands.elementwise_2d("affine", call.rows, call.columns(), &[&places[..], &numbers].concat());
}

impl CudaForward for Affine {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let [weight, bias] = [self.weight, self.bias].map(|weight| call.weight(weight).f32);
        let to = Destination::overwrite(tensors.out);
        affine(work, call, AffinePtrs { x: tensors.inputs[0], weight, bias, to });
    }
}

impl CudaForward for Add {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        work.commands.elementwise("add", call.count(), &places(tensors));
    }
}
