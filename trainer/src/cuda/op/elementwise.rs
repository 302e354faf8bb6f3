//! Elementwise functions, sums, and per-column affine transforms.

use siskin_cuda::ops::elementwise::{AffinePtrs, GateFunction, affine};
use siskin_cuda::ops::{Destination, OpCall};
use siskin_cuda::{CommandBuilder, PointwiseFunction, flag, int};
use siskin_device::{KernelArgument, MatrixShape};
use siskin_graph::op::{Activate, Add, Affine, Clamp, ClampedGate, Gate, Scale, Softcap};

use super::call::{GradientColumns, sum_gradient_rows, sum_rows};
use super::{CudaBackward, OpBackward};

fn unary(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    function: PointwiseFunction,
    back: &OpBackward<'_>,
) {
    let Some(to) = back.input_gradients[0] else { return };
    let places = [back.inputs[0], back.gradient].map(KernelArgument::Ptr);
    let arguments = [&function.arguments()[..], &places, &to.arguments()].concat();
    work.commands.elementwise("activate_backward", call.count(), &arguments);
}

fn gate(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, op: &dyn GateFunction, back: &OpBackward<'_>) {
    let to = [0, 1].map(|input| back.input_gradients[input].unwrap_or(Destination::overwrite(0)));
    let places = [back.inputs[0], back.inputs[1], back.gradient, to[0].ptr, to[1].ptr];
    let adds = to.map(|to| flag(to.accumulate));
    let arguments = [&op.gate_arguments()[..], &places.map(KernelArgument::Ptr), &adds].concat();
    work.commands.elementwise("gate_backward", call.count(), &arguments);
}

macro_rules! unary {
    ($($operation:ty),*) => {$(
        impl CudaBackward for $operation {
            fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
                unary(work, call, PointwiseFunction::from(*self), back);
            }
        }
    )*};
}

unary!(Activate, Scale, Softcap, Clamp);

macro_rules! gate {
    ($($operation:ty),*) => {$(
        impl CudaBackward for $operation {
            fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
                gate(work, call, self, back);
            }
        }
    )*};
}

gate!(Gate, ClampedGate);

impl CudaBackward for Add {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        for to in back.input_gradients.iter().flatten() {
            let arguments = [&[KernelArgument::Ptr(back.gradient)], &to.arguments()[..]].concat();
            work.commands.elementwise("copy_or_accumulate", call.count(), &arguments);
        }
    }
}

impl CudaBackward for Affine {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        if let Some(to) = back.input_gradients[0] {
            let weight = call.weight(self.weight).f32;
            affine(work, call, AffinePtrs { x: back.gradient, weight, bias: 0, to });
        }
        let shape = MatrixShape { rows: call.rows, columns: call.columns() };
        let to = back.weight_gradient(self.weight);
        if to > 0 {
            let places = [back.inputs[0], back.gradient].map(KernelArgument::Ptr);
            let arguments = [&places[..], &[shape.rows, shape.columns].map(int)].concat();
            sum_rows(work, "sum_products", shape, &arguments, to);
        }
        let to = back.weight_gradient(self.bias);
        if to > 0 {
            let gradient = GradientColumns { ptr: back.gradient, shape, stride: shape.columns, start: 0 };
            sum_gradient_rows(work, gradient, to);
        }
    }
}
