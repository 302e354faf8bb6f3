//! Normalization of groups of columns.

use siskin_device::{DevicePtr, KernelArgument, MatrixShape};
use siskin_graph::{NormKind, Op, op};

use super::call::{GradientTarget, OpBackward, OpCall, sum_rows};
use crate::cuda::command_builder::{CommandBuilder, flag, int};

/// Returns the shape arguments of a norm: groups, elements per group, factors, whether it is centered, and epsilon.
fn shape(
    call: &OpCall<'_>,
    weight: usize,
    group: usize,
    kind: NormKind,
    epsilon: f32,
) -> [KernelArgument; 5] {
    let factors = call.weight(weight).count;
    let centered = flag(kind == NormKind::Layer);
    [int(call.count() / group), int(group), int(factors), centered, KernelArgument::Float(epsilon)]
}

pub(super) fn forward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, x: DevicePtr, out: DevicePtr) {
    if let Op::L2Normalize(op::L2Normalize { group, epsilon, factor }) = call.node.op {
        let runs = call.count() / group;
        let numbers = [int(runs), int(group), KernelArgument::Float(epsilon), KernelArgument::Float(factor)];
        let arguments = [&[x, out].map(KernelArgument::Ptr)[..], &numbers].concat();
        work.commands.warp_per_item("l2_normalize", runs, &arguments);
        return;
    }
    of_sum(work, call, NormPtrs { x, residual: 0, sum: 0, out });
}

/// The tensors of a norm.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct NormPtrs {
    pub(in crate::cuda) x: DevicePtr,
    /// What is added to x first; 0: nothing.
    pub(in crate::cuda) residual: DevicePtr,
    /// Where the sum is kept, if there is one.
    pub(in crate::cuda) sum: DevicePtr,
    pub(in crate::cuda) out: DevicePtr,
}

/// The norm of x, or of the sum of x and another value (fused residual); the sum is kept.
pub(super) fn of_sum(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: NormPtrs) {
    let Op::Norm(op::Norm { kind, weight, bias, epsilon, group }) = call.node.op else { return };
    let bias = bias.map_or(0, |bias| call.weight(bias).f32);
    let NormPtrs { x, residual, sum, out } = ptrs;
    let places = [x, residual, sum, out, call.weight(weight).f32, bias].map(KernelArgument::Ptr);
    let arguments = [&places[..], &shape(call, weight, group, kind, epsilon)].concat();
    work.commands.warp_per_item("norm", call.count() / group, &arguments);
}

pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let x = back.inputs[0];
    if let (Op::L2Normalize(op::L2Normalize { group, epsilon, factor }), Some(to)) =
        (&call.node.op, back.input_gradients[0])
    {
        let runs = call.count() / group;
        let numbers =
            [int(runs), int(*group), KernelArgument::Float(*epsilon), KernelArgument::Float(*factor)];
        let places = [x, back.gradient].map(KernelArgument::Ptr);
        work.commands.warp_per_item(
            "l2_normalize_backward",
            runs,
            &[&places[..], &to.arguments(), &numbers].concat(),
        );
    }
    let Op::Norm(op::Norm { kind, weight, bias, epsilon, group }) = call.node.op else { return };
    let runs = call.count() / group;
    let left = work.scratch.floats(2 * runs);
    let to = back.input_gradients[0].unwrap_or(GradientTarget { ptr: 0, accumulate: false });
    let places = [x, back.gradient, to.ptr, call.weight(weight).f32, left].map(KernelArgument::Ptr);
    let arguments =
        [&places[..], &[flag(to.accumulate)], &shape(call, weight, group, kind, epsilon)].concat();
    work.commands.warp_per_item("norm_backward", runs, &arguments);
    // Factors repeat across groups: rows of the sums are as wide as there are factors.
    let columns = call.weight(weight).count;
    let rows = call.count() / columns;
    let to = call.weight(weight).gradient;
    if to > 0 {
        let places = [x, back.gradient, left].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[int(group), int(rows), int(columns)]].concat();
        sum_rows(work, "sum_normalized", MatrixShape { rows, columns }, &arguments, to);
    }
    let to = bias.map_or(0, |bias| call.weight(bias).gradient);
    if to > 0 {
        let numbers = [rows, columns, columns, 0].map(int);
        let arguments = [&[KernelArgument::Ptr(back.gradient)], &numbers[..]].concat();
        sum_rows(work, "sum_rows", MatrixShape { rows, columns }, &arguments, to);
    }
}
