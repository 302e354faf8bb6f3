//! Elementwise functions, sums, and per-column affine transforms.

use siskin_cuda::PointwiseFunction;
use siskin_device::{DevicePtr, KernelArgument, MatrixShape};
use siskin_graph::{ActivationFunction, GateLimits, WeightId};

use super::call::{GradientTarget, OpBackward, OpCall, sum_rows};
use crate::cuda::command_builder::{CommandBuilder, flag, int};

/// An elementwise operation.
#[derive(Clone, Copy)]
pub(super) enum ElementwiseOp {
    /// A function of one value.
    Unary(PointwiseFunction),
    /// A function of the gate, times the up projection.
    Gate(ActivationFunction),
    /// The same, clamped.
    GateLimited(GateLimits),
    /// Factor and bias per column.
    Affine { weight: WeightId, bias: WeightId },
    /// The sum of two values.
    Add,
}

/// Returns the arguments of a gate kernel: function, limit and slope.
fn gate_arguments(function: ActivationFunction, limits: Option<GateLimits>) -> [KernelArgument; 3] {
    let GateLimits { limit, slope } = limits.unwrap_or(GateLimits { limit: 0.0, slope: 0.0 });
    let function = KernelArgument::Int(PointwiseFunction::Activation(function).code());
    [function, KernelArgument::Float(limit), KernelArgument::Float(slope)]
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: ElementwiseOp,
    inputs: &[DevicePtr],
    out: DevicePtr,
) {
    let places: Vec<KernelArgument> =
        inputs.iter().chain([&out]).map(|&place| KernelArgument::Ptr(place)).collect();
    let mut gate = |function, limits| {
        let arguments = [&gate_arguments(function, limits)[..], &places].concat();
        work.commands.elementwise("gate", call.count(), &arguments);
    };
    match op {
        ElementwiseOp::Unary(function) => {
            work.commands.elementwise(
                "activate",
                call.count(),
                &[&function.arguments()[..], &places].concat(),
            );
        }
        ElementwiseOp::Gate(function) => gate(function, None),
        ElementwiseOp::GateLimited(limits) => gate(ActivationFunction::Silu, Some(limits)),
        ElementwiseOp::Affine { weight, bias } => {
            let weights = [weight, bias].map(|weight| call.weight(weight).f32);
            affine(work, call, inputs[0], weights, GradientTarget { ptr: out, accumulate: false });
        }
        ElementwiseOp::Add => work.commands.elementwise("add", call.count(), &places),
    }
}

fn affine(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    x: DevicePtr,
    [factors, terms]: [DevicePtr; 2],
    to: GradientTarget,
) {
    let places = [x, factors, terms, to.ptr].map(KernelArgument::Ptr);
    let numbers = [flag(to.accumulate), int(call.rows), int(call.columns())];
    work.commands.elementwise_2d("affine", call.rows, call.columns(), &[&places[..], &numbers].concat());
}

pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: ElementwiseOp,
    back: &OpBackward<'_>,
) {
    let gradient = KernelArgument::Ptr(back.gradient);
    match op {
        ElementwiseOp::Unary(function) => {
            let Some(to) = back.input_gradients[0] else { return };
            let places = [KernelArgument::Ptr(back.inputs[0]), gradient];
            let arguments = [&function.arguments()[..], &places, &to.arguments()].concat();
            work.commands.elementwise("activate_backward", call.count(), &arguments);
        }
        ElementwiseOp::Gate(function) => gate_backward(work, call, back, gate_arguments(function, None)),
        ElementwiseOp::GateLimited(limits) => {
            gate_backward(work, call, back, gate_arguments(ActivationFunction::Silu, Some(limits)));
        }
        ElementwiseOp::Affine { weight, bias } => affine_backward(work, call, back, [weight, bias]),
        ElementwiseOp::Add => {
            for to in back.input_gradients.iter().flatten() {
                let arguments = [&[gradient], &to.arguments()[..]].concat();
                work.commands.elementwise("copy_or_accumulate", call.count(), &arguments);
            }
        }
    }
}

fn gate_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    function: [KernelArgument; 3],
) {
    let nowhere = GradientTarget { ptr: 0, accumulate: false };
    let to = [0, 1].map(|input| back.input_gradients[input].unwrap_or(nowhere));
    let inputs = [back.inputs[0], back.inputs[1]].map(KernelArgument::Ptr);
    let places = to.map(|to| KernelArgument::Ptr(to.ptr));
    let adds = to.map(|to| flag(to.accumulate));
    let gradient = [KernelArgument::Ptr(back.gradient)];
    let arguments = [&function[..], &inputs, &gradient, &places, &adds].concat();
    work.commands.elementwise("gate_backward", call.count(), &arguments);
}

fn affine_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    [weight, bias]: [usize; 2],
) {
    if let Some(to) = back.input_gradients[0] {
        affine(work, call, back.gradient, [call.weight(weight).f32, 0], to);
    }
    let (rows, columns) = (call.rows, call.columns());
    let to = call.weight(weight).gradient;
    if to > 0 {
        let places = [back.inputs[0], back.gradient].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[int(rows), int(columns)]].concat();
        sum_rows(work, "sum_products", MatrixShape { rows, columns }, &arguments, to);
    }
    let to = call.weight(bias).gradient;
    if to > 0 {
        let numbers = [rows, columns, columns, 0].map(int);
        let arguments = [&[KernelArgument::Ptr(back.gradient)], &numbers[..]].concat();
        sum_rows(work, "sum_rows", MatrixShape { rows, columns }, &arguments, to);
    }
}
