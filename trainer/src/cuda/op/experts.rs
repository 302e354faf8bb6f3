//! Mixture of experts. The device sorts choices by expert, so that the tape does not depend on the routing.

use siskin::graph::{Op, Routing};

use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, flag, whole};
use crate::cuda::Precision;

/// Choices that a block sorts; rows and columns of a matmul tile, and its threads.
const CHOICES: usize = 256;
const SIDE: usize = 64;
const THREADS: usize = 128;

/// Returns the maximum number of experts whose indices a dtype represents exactly.
pub(super) fn most(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 1 << 24,
        Precision::Bf16 => 1 << 8,
        Precision::Fp16 => 1 << 11,
    }
}

/// The slot of each choice.
struct Slots {
    /// The first slot of each expert, and the end of the last.
    starts: Place,
    /// The slot of each choice.
    places: Place,
    /// The choice of each slot.
    owners: Place,
}

/// Returns the number of choices of all rows.
fn count(call: &OpCall<'_>, routing: &Routing) -> usize {
    call.texts().rows.len() * routing.chosen
}

/// Sorts choices by expert.
fn slots(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, routing: &Routing, routed: Place) -> Slots {
    let (count, texts) = (count(call, routing), call.texts());
    let blocks = count.div_ceil(CHOICES);
    let first_rows = work.sheet.whole(&call.name("first rows"), || {
        texts.rows.iter().map(|row| texts.spans[row.text].start as i32).collect()
    });
    let mut room = |count: usize| work.scratch.floats(count);
    let (starts, places, owners) = (room(routing.experts + 1), room(count), room(count));
    let (expert_of, counts) = (room(count), room(blocks * routing.experts));
    let sizes = [count, routing.chosen, routing.experts].map(whole);
    let arguments = [
        &[routed, first_rows].map(KernelArgument::Place)[..],
        &[whole(routing.capacity.unwrap_or(0))],
        &[expert_of, owners, counts].map(KernelArgument::Place),
        &sizes,
    ];
    let name = work.tape.named("choose");
    work.tape.kernel(&name, [blocks, 1, 1], CHOICES, 0, &arguments.concat());
    let arguments =
        [&[counts, starts].map(KernelArgument::Place)[..], &[blocks, routing.experts].map(whole)].concat();
    work.tape.kernel("begin_experts_in_order", [1, 1, 1], CHOICES, 0, &arguments);
    let places_of = [expert_of, counts, places, owners].map(KernelArgument::Place);
    let arguments = [&places_of[..], &[count, routing.experts].map(whole)].concat();
    work.tape.kernel("place_choices_in_order", [blocks, 1, 1], CHOICES, 0, &arguments);
    Slots { starts, places, owners }
}

/// The direction in which rows are moved.
enum Way {
    /// Scatters rows to slots.
    To,
    /// Sums slots into rows.
    Of,
}

/// Moves rows from `from` into a table of `sizes[0]` rows, weighted by `routed`; 0: unweighted.
fn move_rows(
    work: &mut TapeBuilder<'_>,
    (way, slots): (Way, &Slots),
    [from, routed]: [Place; 2],
    to: super::To,
    sizes: [usize; 3],
) {
    let (name, places) = match way {
        Way::To => ("to_slots", slots.owners),
        Way::Of => ("of_slots", slots.places),
    };
    let places = [from, routed, places].map(KernelArgument::Place);
    let arguments = [&places[..], &to.arguments(), &sizes.map(whole)].concat();
    work.tape.cells(name, sizes[0], sizes[1], &arguments);
}

/// Writes a list of one pointer per expert.
fn list(work: &mut TapeBuilder<'_>, name: &str, places: impl Iterator<Item = Place>) -> KernelArgument {
    KernelArgument::Place(work.sheet.table(name, || places.flat_map(u64::to_le_bytes).collect()))
}

/// Returns the shared memory of a matmul, in bytes.
fn shared(precision: Precision) -> usize {
    2 * SIDE * (SIDE + precision.wide()) * precision.bytes()
}

pub(super) fn forward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, inputs: &[Place], out: Place) {
    let (rows, columns) = (call.rows, call.columns());
    let to = super::To { place: out, add: false };
    match &call.node.op {
        Op::Route(routing) => {
            let sizes = [rows, routing.experts, routing.chosen].map(whole);
            let places = [inputs[0], out].map(KernelArgument::Place);
            let arguments = [&places[..], &sizes, &[flag(routing.normalize)]].concat();
            let name = work.tape.named("route");
            work.tape.kernel(&name, [rows.div_ceil(256), 1, 1], 256, 0, &arguments);
        }
        Op::Dispatch(routing) => {
            let slots = slots(work, call, routing, inputs[1]);
            move_rows(work, (Way::To, &slots), [inputs[0], 0], to, [rows, columns, routing.chosen]);
        }
        Op::Combine(routing) => {
            let slots = slots(work, call, routing, inputs[1]);
            move_rows(work, (Way::Of, &slots), [inputs[0], inputs[1]], to, [rows, columns, routing.chosen]);
        }
        Op::ExpertLinear { routing, weights, biases } => {
            let slots = slots(work, call, routing, inputs[1]);
            let depth = call.input(0).columns;
            let of = |weight: &usize| call.weight(*weight).numbers;
            let matrices = list(work, &format!("experts {weights:?}"), weights.iter().map(of));
            let terms = match biases.is_empty() {
                true => KernelArgument::Place(0),
                false => list(work, &format!("experts {biases:?}"), biases.iter().map(of)),
            };
            let arguments = [
                &[KernelArgument::Place(inputs[0]), matrices, terms, KernelArgument::Place(slots.starts)][..],
                &[KernelArgument::Place(out)],
                &[rows, depth, columns, routing.experts].map(whole),
            ];
            let name = work.tape.named("expert_linear");
            let grid = [columns.div_ceil(SIDE), rows.div_ceil(SIDE) + routing.experts + 1, 1];
            work.tape.kernel(&name, grid, THREADS, shared(work.tape.precision), &arguments.concat());
        }
        _ => {}
    }
}

pub(super) fn backward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let (rows, columns) = (call.rows, call.columns());
    match &call.node.op {
        Op::Route(routing) => {
            let Some(to) = back.to[0] else { return };
            let places = [back.inputs[0], back.output, back.gradient].map(KernelArgument::Place);
            let sizes = [rows, routing.experts, routing.chosen].map(whole);
            let arguments = [&places[..], &to.arguments(), &sizes, &[flag(routing.normalize)]].concat();
            let name = work.tape.named("route_back");
            work.tape.kernel(&name, [rows.div_ceil(256), 1, 1], 256, 0, &arguments);
        }
        Op::Dispatch(routing) => {
            nothing(work, call, back, routing);
            let Some(to) = back.to[0] else { return };
            let slots = slots(work, call, routing, back.inputs[1]);
            let sizes = [call.texts().rows.len(), columns, routing.chosen];
            move_rows(work, (Way::Of, &slots), [back.gradient, 0], to, sizes);
        }
        Op::Combine(routing) => combine_back(work, call, back, routing),
        Op::ExpertLinear { routing, weights, biases } => {
            nothing(work, call, back, routing);
            let slots = slots(work, call, routing, back.inputs[1]);
            expert_back(work, call, back, (routing, &slots), [weights, biases]);
        }
        _ => {}
    }
}

/// The routing input gets no gradient here, but later accumulation needs a zeroed buffer.
fn nothing(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>, routing: &Routing) {
    if let Some(to) = back.to[1].filter(|to| !to.add) {
        work.tape.clear(to.place, 2 * count(call, routing) * work.tape.precision.bytes());
    }
}

fn combine_back(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>, routing: &Routing) {
    let (columns, count) = (call.columns(), count(call, routing));
    let slots = slots(work, call, routing, back.inputs[1]);
    if let Some(to) = back.to[0] {
        let sizes = [count, columns, routing.chosen];
        move_rows(work, (Way::To, &slots), [back.gradient, back.inputs[1]], to, sizes);
    }
    if let Some(to) = back.to[1] {
        let places = [back.inputs[0], back.gradient, slots.places].map(KernelArgument::Place);
        let sizes = [count, columns, routing.chosen].map(whole);
        work.tape.warps("weights_back", count, &[&places[..], &to.arguments(), &sizes].concat());
    }
}

fn expert_back(
    work: &mut TapeBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    (routing, slots): (&Routing, &Slots),
    [weights, biases]: [&Vec<usize>; 2],
) {
    let (rows, columns, depth) = (call.rows, call.columns(), call.input(0).columns);
    let (precision, starts) = (work.tape.precision, KernelArgument::Place(slots.starts));
    if let Some(to) = back.to[0] {
        let of = |weight: &usize| call.weight(*weight).numbers;
        let matrices = list(work, &format!("experts {weights:?}"), weights.iter().map(of));
        let arguments = [
            &[KernelArgument::Place(back.gradient), matrices, starts][..],
            &to.arguments(),
            &[rows, depth, columns, routing.experts].map(whole),
        ];
        let name = work.tape.named("expert_back");
        let grid = [depth.div_ceil(SIDE), rows.div_ceil(SIDE) + routing.experts + 1, 1];
        work.tape.kernel(&name, grid, THREADS, shared(precision), &arguments.concat());
    }
    let steep = |weight: &usize| call.weight(*weight).gradient;
    if weights.iter().any(|weight| steep(weight) > 0) {
        let gradients = list(work, &format!("gradients {weights:?}"), weights.iter().map(steep));
        let places = [back.inputs[0], back.gradient].map(KernelArgument::Place);
        let arguments = [&places[..], &[gradients, starts], &[depth, columns].map(whole)].concat();
        let name = work.tape.named("expert_weights_back");
        let grid = [depth.div_ceil(SIDE), columns.div_ceil(SIDE), weights.len()];
        work.tape.kernel(&name, grid, THREADS, shared(precision), &arguments);
    }
    if biases.iter().any(|bias| steep(bias) > 0) {
        let gradients = list(work, &format!("gradients {biases:?}"), biases.iter().map(steep));
        let arguments = [KernelArgument::Place(back.gradient), gradients, starts, whole(columns)];
        let name = work.tape.named("expert_bias_back");
        work.tape.kernel(&name, [columns.div_ceil(32), biases.len(), 1], 256, 0, &arguments);
    }
}
