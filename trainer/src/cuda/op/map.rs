//! Elementwise functions, sums, and per-column affine transforms.

use siskin::graph::{ActivationKind, Op};

#[cfg(feature = "cuda")]
use super::Tape;
use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, To, flag, sum_rows, whole};

/// Returns the number of a function in `kernels/cuda/map.cu`.
fn number(kind: ActivationKind) -> i32 {
    match kind {
        ActivationKind::Silu => 0,
        ActivationKind::Gelu => 1,
        ActivationKind::GeluTanh => 2,
        ActivationKind::Relu => 3,
        ActivationKind::Sigmoid => 4,
        ActivationKind::EluPlusOne => 5,
    }
}

/// Returns an elementwise function of one input, and its parameter.
fn of_one(op: &Op) -> Option<[KernelArgument; 2]> {
    let (function, parameter) = match *op {
        Op::Activate(kind) => (number(kind), 0.0),
        Op::Scale(factor) => (6, factor),
        Op::Softcap(cap) => (7, cap),
        Op::Clamp(limit) => (8, limit),
        _ => return None,
    };
    Some([KernelArgument::Whole(function), KernelArgument::Float(parameter)])
}

/// Returns a function of gate and up projection: function, limit and slope.
fn of_two(op: &Op) -> Option<[KernelArgument; 3]> {
    let (function, limit, slope) = match op {
        Op::Gate(kind) => (number(*kind), 0.0, 0.0),
        Op::GateLimited(limits) => (0, limits.limit, limits.slope),
        _ => return None,
    };
    Some([KernelArgument::Whole(function), KernelArgument::Float(limit), KernelArgument::Float(slope)])
}

/// Appends tanh-GELU of `count` elements.
#[cfg(feature = "cuda")]
pub(super) fn gelu(tape: &mut Tape, count: usize, [from, to]: [Place; 2]) {
    let function = [KernelArgument::Whole(number(ActivationKind::GeluTanh)), KernelArgument::Float(0.0)];
    tape.numbers("activate", count, &[&function[..], &[from, to].map(KernelArgument::Place)].concat());
}

pub(super) fn forward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, inputs: &[Place], out: Place) {
    let places: Vec<KernelArgument> =
        inputs.iter().chain([&out]).map(|&place| KernelArgument::Place(place)).collect();
    let op = &call.node.op;
    if let Some(function) = of_one(op) {
        work.tape.numbers("activate", call.count(), &[&function[..], &places].concat());
    } else if let Some(function) = of_two(op) {
        work.tape.numbers("gate", call.count(), &[&function[..], &places].concat());
    } else if let Op::Affine { weight, bias } = *op {
        let weights = [weight, bias].map(|weight| call.weight(weight).floats);
        affine(work, call, inputs[0], weights, To { place: out, add: false });
    } else if *op == Op::Add {
        work.tape.numbers("add", call.count(), &places);
    }
}

fn affine(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, x: Place, [factors, terms]: [Place; 2], to: To) {
    let places = [x, factors, terms, to.place].map(KernelArgument::Place);
    let numbers = [flag(to.add), whole(call.rows), whole(call.columns())];
    work.tape.cells("affine", call.rows, call.columns(), &[&places[..], &numbers].concat());
}

pub(super) fn backward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let op = &call.node.op;
    let gradient = KernelArgument::Place(back.gradient);
    if let (Some(function), Some(to)) = (of_one(op), back.to[0]) {
        let arguments =
            [&function[..], &[KernelArgument::Place(back.inputs[0]), gradient], &to.arguments()].concat();
        work.tape.numbers("activate_back", call.count(), &arguments);
    } else if let Some(function) = of_two(op) {
        let to = [0, 1].map(|input| back.to[input].unwrap_or(To { place: 0, add: false }));
        let inputs = [back.inputs[0], back.inputs[1]].map(KernelArgument::Place);
        let places = to.map(|to| KernelArgument::Place(to.place));
        let adds = to.map(|to| flag(to.add));
        let arguments = [&function[..], &inputs, &[gradient], &places, &adds].concat();
        work.tape.numbers("gate_back", call.count(), &arguments);
    } else if let Op::Affine { weight, bias } = *op {
        affine_back(work, call, back, [weight, bias]);
    } else if *op == Op::Add {
        for to in back.to.iter().flatten() {
            work.tape.numbers("hand_on", call.count(), &[&[gradient], &to.arguments()[..]].concat());
        }
    }
}

fn affine_back(
    work: &mut TapeBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    [weight, bias]: [usize; 2],
) {
    if let Some(to) = back.to[0] {
        affine(work, call, back.gradient, [call.weight(weight).floats, 0], to);
    }
    let (rows, columns) = (call.rows, call.columns());
    let to = call.weight(weight).gradient;
    if to > 0 {
        let places = [back.inputs[0], back.gradient].map(KernelArgument::Place);
        let arguments = [&places[..], &[whole(rows), whole(columns)]].concat();
        sum_rows(work, "sum_products", [rows, columns], &arguments, to);
    }
    let to = call.weight(bias).gradient;
    if to > 0 {
        let numbers = [rows, columns, columns, 0].map(whole);
        let arguments = [&[KernelArgument::Place(back.gradient)], &numbers[..]].concat();
        sum_rows(work, "sum_rows", [rows, columns], &arguments, to);
    }
}
