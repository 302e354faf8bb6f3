//! Elementwise functions, sums, and per-column affine transforms.

use siskin_cuda::PointwiseFunction;
use siskin_device::{DevicePtr, KernelArgument, MatrixShape};
use siskin_graph::{ActivationKind, Op};

use super::call::{GradientTarget, OpBackward, OpCall, sum_rows};
use crate::cuda::command_builder::{CommandBuilder, flag, int};

/// Returns the function of an activation.
fn function(kind: ActivationKind) -> PointwiseFunction {
    match kind {
        ActivationKind::Silu => PointwiseFunction::Silu,
        ActivationKind::Gelu => PointwiseFunction::Gelu,
        ActivationKind::GeluTanh => PointwiseFunction::GeluTanh,
        ActivationKind::Relu => PointwiseFunction::Relu,
        ActivationKind::Sigmoid => PointwiseFunction::Sigmoid,
        ActivationKind::EluPlusOne => PointwiseFunction::EluPlusOne,
    }
}

/// Returns an elementwise function of one input, and its parameter.
fn unary_arguments(op: &Op) -> Option<[KernelArgument; 2]> {
    let (function, parameter) = match *op {
        Op::Activate(kind) => (function(kind), 0.0),
        Op::Scale(factor) => (PointwiseFunction::Scale, factor),
        Op::Softcap(cap) => (PointwiseFunction::Softcap, cap),
        Op::Clamp(limit) => (PointwiseFunction::Clamp, limit),
        _ => return None,
    };
    Some(function.arguments(parameter))
}

/// Returns a function of gate and up projection: function, limit and slope.
fn binary_arguments(op: &Op) -> Option<[KernelArgument; 3]> {
    let (function, limit, slope) = match op {
        Op::Gate(kind) => (function(*kind), 0.0, 0.0),
        Op::GateLimited(limits) => (PointwiseFunction::Silu, limits.limit, limits.slope),
        _ => return None,
    };
    let [function, limit] = function.arguments(limit);
    Some([function, limit, KernelArgument::Float(slope)])
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    inputs: &[DevicePtr],
    out: DevicePtr,
) {
    let places: Vec<KernelArgument> =
        inputs.iter().chain([&out]).map(|&place| KernelArgument::Ptr(place)).collect();
    let op = &call.node.op;
    if let Some(function) = unary_arguments(op) {
        work.commands.elementwise("activate", call.count(), &[&function[..], &places].concat());
    } else if let Some(function) = binary_arguments(op) {
        work.commands.elementwise("gate", call.count(), &[&function[..], &places].concat());
    } else if let Op::Affine { weight, bias } = *op {
        let weights = [weight, bias].map(|weight| call.weight(weight).f32);
        affine(work, call, inputs[0], weights, GradientTarget { ptr: out, accumulate: false });
    } else if *op == Op::Add {
        work.commands.elementwise("add", call.count(), &places);
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

pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let op = &call.node.op;
    let gradient = KernelArgument::Ptr(back.gradient);
    if let (Some(function), Some(to)) = (unary_arguments(op), back.input_gradients[0]) {
        let arguments =
            [&function[..], &[KernelArgument::Ptr(back.inputs[0]), gradient], &to.arguments()].concat();
        work.commands.elementwise("activate_backward", call.count(), &arguments);
    } else if let Some(function) = binary_arguments(op) {
        let to = [0, 1]
            .map(|input| back.input_gradients[input].unwrap_or(GradientTarget { ptr: 0, accumulate: false }));
        let inputs = [back.inputs[0], back.inputs[1]].map(KernelArgument::Ptr);
        let places = to.map(|to| KernelArgument::Ptr(to.ptr));
        let adds = to.map(|to| flag(to.accumulate));
        let arguments = [&function[..], &inputs, &[gradient], &places, &adds].concat();
        work.commands.elementwise("gate_backward", call.count(), &arguments);
    } else if let Op::Affine { weight, bias } = *op {
        affine_backward(work, call, back, [weight, bias]);
    } else if *op == Op::Add {
        for to in back.input_gradients.iter().flatten() {
            work.commands.elementwise(
                "copy_or_accumulate",
                call.count(),
                &[&[gradient], &to.arguments()[..]].concat(),
            );
        }
    }
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
