//! Normalization of groups of columns.

use siskin::graph::{NormKind, Op};

use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, To, flag, sum_rows, whole};

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
    [whole(call.count() / group), whole(group), whole(factors), centered, KernelArgument::Float(epsilon)]
}

pub(super) fn forward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, x: Place, out: Place) {
    if let Op::L2Normalize { group, epsilon, factor } = call.node.op {
        let runs = call.count() / group;
        let numbers =
            [whole(runs), whole(group), KernelArgument::Float(epsilon), KernelArgument::Float(factor)];
        let arguments = [&[x, out].map(KernelArgument::Place)[..], &numbers].concat();
        work.tape.warps("unit", runs, &arguments);
        return;
    }
    of_sum(work, call, [x, 0, 0, out]);
}

/// The norm of x, or of the sum of x and another value (fused residual); the sum is kept.
pub(super) fn of_sum(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, [x, other, sum, out]: [Place; 4]) {
    let Op::Norm { kind, weight, bias, epsilon, group } = call.node.op else { return };
    let bias = bias.map_or(0, |bias| call.weight(bias).floats);
    let places = [x, other, sum, out, call.weight(weight).floats, bias].map(KernelArgument::Place);
    let arguments = [&places[..], &shape(call, weight, group, kind, epsilon)].concat();
    work.tape.warps("norm", call.count() / group, &arguments);
}

pub(super) fn backward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let x = back.inputs[0];
    if let (Op::L2Normalize { group, epsilon, factor }, Some(to)) = (&call.node.op, back.to[0]) {
        let runs = call.count() / group;
        let numbers =
            [whole(runs), whole(*group), KernelArgument::Float(*epsilon), KernelArgument::Float(*factor)];
        let places = [x, back.gradient].map(KernelArgument::Place);
        work.tape.warps("unit_back", runs, &[&places[..], &to.arguments(), &numbers].concat());
    }
    let Op::Norm { kind, weight, bias, epsilon, group } = call.node.op else { return };
    let runs = call.count() / group;
    let left = work.scratch.floats(2 * runs);
    let to = back.to[0].unwrap_or(To { place: 0, add: false });
    let places = [x, back.gradient, to.place, call.weight(weight).floats, left].map(KernelArgument::Place);
    let arguments = [&places[..], &[flag(to.add)], &shape(call, weight, group, kind, epsilon)].concat();
    work.tape.warps("norm_back", runs, &arguments);
    // Factors repeat across groups: rows of the sums are as wide as there are factors.
    let columns = call.weight(weight).count;
    let rows = call.count() / columns;
    let to = call.weight(weight).gradient;
    if to > 0 {
        let places = [x, back.gradient, left].map(KernelArgument::Place);
        let arguments = [&places[..], &[whole(group), whole(rows), whole(columns)]].concat();
        sum_rows(work, "sum_normalized", [rows, columns], &arguments, to);
    }
    let to = bias.map_or(0, |bias| call.weight(bias).gradient);
    if to > 0 {
        let numbers = [rows, columns, columns, 0].map(whole);
        let arguments = [&[KernelArgument::Place(back.gradient)], &numbers[..]].concat();
        sum_rows(work, "sum_rows", [rows, columns], &arguments, to);
    }
}
