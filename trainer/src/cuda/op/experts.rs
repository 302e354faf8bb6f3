//! Mixture of experts. The device sorts choices by expert, so that the command list does not depend on the routing.

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape, Precision};
use siskin_graph::{Routing, WeightId};

use super::call::{GradientTarget, OpBackward, OpCall};
use crate::cuda::command_builder::{CommandBuilder, flag, int};

/// Choices that a block sorts; rows and columns of a matmul tile, and its threads.
const CHOICES: usize = 256;
const SIDE: usize = 64;
const THREADS: usize = 128;

/// Returns the maximum number of experts whose indices a dtype represents exactly.
pub(super) fn max_experts(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 1 << 24,
        Precision::Bf16 => 1 << 8,
        Precision::Fp16 => 1 << 11,
    }
}

/// The slot of each choice.
struct Slots {
    /// The first slot of each expert, and the end of the last.
    starts: DevicePtr,
    /// The slot of each choice.
    places: DevicePtr,
    /// The choice of each slot.
    owners: DevicePtr,
    /// Experts that each row chooses.
    chosen: usize,
}

/// Returns the number of choices of all rows.
fn count(call: &OpCall<'_>, routing: &Routing) -> usize {
    call.sequences().rows.len() * routing.top_k
}

/// Sorts choices by expert.
fn slots(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, routing: &Routing, routed: DevicePtr) -> Slots {
    let (count, texts) = (count(call, routing), call.sequences());
    let blocks = count.div_ceil(CHOICES);
    let first_rows = work.tables.ints(&call.name("first rows"), || {
        texts.rows.iter().map(|row| texts.sequences[row.sequence].rows.start as i32).collect()
    });
    let mut alloc = |count: usize| work.scratch.floats(count);
    let (starts, places, owners) = (alloc(routing.experts + 1), alloc(count), alloc(count));
    let (expert_of, counts) = (alloc(count), alloc(blocks * routing.experts));
    let sizes = [count, routing.top_k, routing.experts].map(int);
    let arguments = [
        &[routed, first_rows].map(KernelArgument::Ptr)[..],
        &[int(routing.capacity.unwrap_or(0))],
        &[expert_of, owners, counts].map(KernelArgument::Ptr),
        &sizes,
    ];
    let name = work.commands.kernel_name("count_choices");
    work.commands.kernel(&name, GridSize::linear(blocks), CHOICES, 0, &arguments.concat());
    let arguments =
        [&[counts, starts].map(KernelArgument::Ptr)[..], &[blocks, routing.experts].map(int)].concat();
    work.commands.kernel("expert_offsets", GridSize::linear(1), CHOICES, 0, &arguments);
    let places_of = [expert_of, counts, places, owners].map(KernelArgument::Ptr);
    let arguments = [&places_of[..], &[count, routing.experts].map(int)].concat();
    work.commands.kernel("assign_slots", GridSize::linear(blocks), CHOICES, 0, &arguments);
    Slots { starts, places, owners, chosen: routing.top_k }
}

/// How rows move between tokens and expert slots.
enum ExpertRouting {
    /// Copies rows to the slots of their experts.
    Dispatch,
    /// Sums slots into rows.
    Combine,
}

/// The rows that are moved.
#[derive(Clone, Copy, Debug)]
struct RoutedRows {
    from: DevicePtr,
    /// The routing weights of the rows; 0: unweighted.
    routed: DevicePtr,
}

/// Moves rows into a matrix of this shape.
fn move_rows(
    work: &mut CommandBuilder<'_>,
    direction: ExpertRouting,
    slots: &Slots,
    RoutedRows { from, routed }: RoutedRows,
    to: GradientTarget,
    MatrixShape { rows, columns }: MatrixShape,
) {
    let (name, places) = match direction {
        ExpertRouting::Dispatch => ("dispatch", slots.owners),
        ExpertRouting::Combine => ("combine", slots.places),
    };
    let places = [from, routed, places].map(KernelArgument::Ptr);
    let arguments = [&places[..], &to.arguments(), &[rows, columns, slots.chosen].map(int)].concat();
    work.commands.elementwise_2d(name, rows, columns, &arguments);
}

/// Writes a list of one pointer per expert.
fn list(
    work: &mut CommandBuilder<'_>,
    name: &str,
    places: impl Iterator<Item = DevicePtr>,
) -> KernelArgument {
    KernelArgument::Ptr(work.tables.table(name, || places.flat_map(u64::to_le_bytes).collect()))
}

/// Returns the shared memory of a matmul, in bytes.
fn shared(precision: Precision) -> usize {
    2 * SIDE * (SIDE + precision.vector_width()) * precision.bytes()
}

/// An operation on the slots of experts.
#[derive(Clone, Copy)]
pub(super) enum ExpertOp<'a> {
    Route(&'a Routing),
    Dispatch(&'a Routing),
    Combine(&'a Routing),
    Linear { routing: &'a Routing, weights: &'a [WeightId], biases: &'a [WeightId] },
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: ExpertOp<'_>,
    inputs: &[DevicePtr],
    out: DevicePtr,
) {
    let (rows, columns) = (call.rows, call.columns());
    let to = GradientTarget { ptr: out, accumulate: false };
    match op {
        ExpertOp::Route(routing) => {
            let sizes = [rows, routing.experts, routing.top_k].map(int);
            let places = [inputs[0], out].map(KernelArgument::Ptr);
            let arguments = [&places[..], &sizes, &[flag(routing.normalize)]].concat();
            let name = work.commands.kernel_name("route");
            work.commands.kernel(&name, GridSize::linear(rows.div_ceil(256)), 256, 0, &arguments);
        }
        ExpertOp::Dispatch(routing) => {
            let slots = slots(work, call, routing, inputs[1]);
            let moved = RoutedRows { from: inputs[0], routed: 0 };
            move_rows(work, ExpertRouting::Dispatch, &slots, moved, to, MatrixShape { rows, columns });
        }
        ExpertOp::Combine(routing) => {
            let slots = slots(work, call, routing, inputs[1]);
            let moved = RoutedRows { from: inputs[0], routed: inputs[1] };
            move_rows(work, ExpertRouting::Combine, &slots, moved, to, MatrixShape { rows, columns });
        }
        ExpertOp::Linear { routing, weights, biases } => {
            let slots = slots(work, call, routing, inputs[1]);
            let depth = call.input(0).columns;
            let of = |weight: &usize| call.weight(*weight).compute;
            let matrices = list(work, &format!("experts {weights:?}"), weights.iter().map(of));
            let terms = match biases.is_empty() {
                true => KernelArgument::Ptr(0),
                false => list(work, &format!("experts {biases:?}"), biases.iter().map(of)),
            };
            let arguments = [
                &[KernelArgument::Ptr(inputs[0]), matrices, terms, KernelArgument::Ptr(slots.starts)][..],
                &[KernelArgument::Ptr(out)],
                &[rows, depth, columns, routing.experts].map(int),
            ];
            let name = work.commands.kernel_name("expert_linear");
            let grid = GridSize::new(columns.div_ceil(SIDE), rows.div_ceil(SIDE) + routing.experts + 1, 1);
            work.commands.kernel(
                &name,
                grid,
                THREADS,
                shared(work.commands.precision()),
                &arguments.concat(),
            );
        }
    }
}

pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: ExpertOp<'_>,
    back: &OpBackward<'_>,
) {
    let (rows, columns) = (call.rows, call.columns());
    match op {
        ExpertOp::Route(routing) => {
            let Some(to) = back.input_gradients[0] else { return };
            let places = [back.inputs[0], back.output, back.gradient].map(KernelArgument::Ptr);
            let sizes = [rows, routing.experts, routing.top_k].map(int);
            let arguments = [&places[..], &to.arguments(), &sizes, &[flag(routing.normalize)]].concat();
            let name = work.commands.kernel_name("route_backward");
            work.commands.kernel(&name, GridSize::linear(rows.div_ceil(256)), 256, 0, &arguments);
        }
        ExpertOp::Dispatch(routing) => {
            zero_routing_gradient(work, call, back, routing);
            let Some(to) = back.input_gradients[0] else { return };
            let slots = slots(work, call, routing, back.inputs[1]);
            let shape = MatrixShape { rows: call.sequences().rows.len(), columns };
            let moved = RoutedRows { from: back.gradient, routed: 0 };
            move_rows(work, ExpertRouting::Combine, &slots, moved, to, shape);
        }
        ExpertOp::Combine(routing) => combine_backward(work, call, back, routing),
        ExpertOp::Linear { routing, weights, biases } => {
            zero_routing_gradient(work, call, back, routing);
            let slots = slots(work, call, routing, back.inputs[1]);
            expert_backward(work, call, back, routing.experts, &slots, weights, biases);
        }
    }
}

/// The routing input gets no gradient here, but later accumulation needs a zeroed buffer.
fn zero_routing_gradient(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    routing: &Routing,
) {
    if let Some(to) = back.input_gradients[1].filter(|to| !to.accumulate) {
        work.commands.clear(to.ptr, 2 * count(call, routing) * work.commands.precision().bytes());
    }
}

fn combine_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    routing: &Routing,
) {
    let (columns, count) = (call.columns(), count(call, routing));
    let slots = slots(work, call, routing, back.inputs[1]);
    if let Some(to) = back.input_gradients[0] {
        let moved = RoutedRows { from: back.gradient, routed: back.inputs[1] };
        move_rows(work, ExpertRouting::Dispatch, &slots, moved, to, MatrixShape { rows: count, columns });
    }
    if let Some(to) = back.input_gradients[1] {
        let places = [back.inputs[0], back.gradient, slots.places].map(KernelArgument::Ptr);
        let sizes = [count, columns, routing.top_k].map(int);
        work.commands.warp_per_item(
            "combine_weights_backward",
            count,
            &[&places[..], &to.arguments(), &sizes].concat(),
        );
    }
}

fn expert_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    experts: usize,
    slots: &Slots,
    weights: &[WeightId],
    biases: &[WeightId],
) {
    let (rows, columns, depth) = (call.rows, call.columns(), call.input(0).columns);
    let (precision, starts) = (work.commands.precision(), KernelArgument::Ptr(slots.starts));
    if let Some(to) = back.input_gradients[0] {
        let of = |weight: &usize| call.weight(*weight).compute;
        let matrices = list(work, &format!("experts {weights:?}"), weights.iter().map(of));
        let arguments = [
            &[KernelArgument::Ptr(back.gradient), matrices, starts][..],
            &to.arguments(),
            &[rows, depth, columns, experts].map(int),
        ];
        let name = work.commands.kernel_name("expert_linear_backward");
        let grid = GridSize::new(depth.div_ceil(SIDE), rows.div_ceil(SIDE) + experts + 1, 1);
        work.commands.kernel(&name, grid, THREADS, shared(precision), &arguments.concat());
    }
    let weight_gradient = |weight: &usize| call.weight(*weight).gradient;
    if weights.iter().any(|weight| weight_gradient(weight) > 0) {
        let gradients = list(work, &format!("gradients {weights:?}"), weights.iter().map(weight_gradient));
        let places = [back.inputs[0], back.gradient].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[gradients, starts], &[depth, columns].map(int)].concat();
        let name = work.commands.kernel_name("expert_linear_weights_backward");
        let grid = GridSize::new(depth.div_ceil(SIDE), columns.div_ceil(SIDE), weights.len());
        work.commands.kernel(&name, grid, THREADS, shared(precision), &arguments);
    }
    if biases.iter().any(|bias| weight_gradient(bias) > 0) {
        let gradients = list(work, &format!("gradients {biases:?}"), biases.iter().map(weight_gradient));
        let arguments = [KernelArgument::Ptr(back.gradient), gradients, starts, int(columns)];
        let name = work.commands.kernel_name("expert_linear_bias_backward");
        work.commands.kernel(&name, GridSize::new(columns.div_ceil(32), biases.len(), 1), 256, 0, &arguments);
    }
}
