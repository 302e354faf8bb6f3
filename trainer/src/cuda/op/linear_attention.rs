//! Linear attention with a recurrent state of constant size, its causal convolution and decay gates.

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_graph::{LinearAttention, Node, Op, StateUpdate, WeightId};

use super::call::{GradientTarget, OpBackward, OpCall, sum_rows};
use crate::cuda::command_builder::{CommandBuilder, flag, int};
use crate::program::Program;

/// The maximum key size; the state columns per warp, the threads of a block, and the tokens between two checkpointed
/// states: as in `runtime/cuda/kernels/linear_attention.cu`.
pub(super) const MAX_KEYS: usize = 256;
const COLUMNS: usize = 32;
const THREADS: usize = 256;
const CHUNK: usize = 32;
const LANES: usize = 32;

/// Returns the number of a rule in the kernels.
fn number(rule: StateUpdate) -> i32 {
    match rule {
        StateUpdate::Additive => 0,
        StateUpdate::BidirectionalAdditive => 1,
        StateUpdate::GatedDelta => 2,
    }
}

/// Returns true if a decay is kept as its logarithm, which represents decays near one in 16 bits: where only linear
/// attention reads it.
pub(in crate::cuda) fn is_logarithm(program: &Program, value: usize) -> bool {
    let made =
        program.graph.nodes.iter().any(|node| node.output == value && matches!(node.op, Op::DecayGate(_)));
    let only_decays = |node: &Node| {
        let mut inputs = node.inputs.iter().enumerate();
        matches!(node.op, Op::LinearAttention(_))
            && inputs.all(|(place, input)| place == 3 || *input != value)
    };
    made && program.graph.nodes.iter().filter(|node| node.inputs.contains(&value)).all(only_decays)
}

/// The position of each row in its sequence, then the number of rows after it.
fn places(work: &mut CommandBuilder<'_>, call: &OpCall<'_>) -> DevicePtr {
    let texts = call.sequences();
    work.tables.ints(&call.name("positions and remaining rows"), || {
        let rows = texts.rows.iter().enumerate();
        let after = rows.map(|(number, row)| texts.sequences[row.sequence].rows.end - 1 - number);
        texts.rows.iter().map(|row| row.position).chain(after).map(|place| place as i32).collect()
    })
}

/// The first row of each sequence, and the end of the last.
fn starts(work: &mut CommandBuilder<'_>, call: &OpCall<'_>) -> DevicePtr {
    let texts = call.sequences();
    work.tables.ints(&call.name("starts of texts"), || {
        let starts = texts.spans().map(|span| span.start);
        starts.chain([texts.rows.len()]).map(|row| row as i32).collect()
    })
}

/// An operation of linear attention.
#[derive(Clone, Copy)]
pub(super) enum StateOp<'a> {
    DecayGate { log: WeightId, bias: WeightId },
    CausalConv1d { taps: usize, weight: WeightId },
    LinearAttention(&'a LinearAttention),
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: StateOp<'_>,
    inputs: &[DevicePtr],
    out: DevicePtr,
) {
    let (rows, columns) = (call.rows, call.columns());
    match op {
        StateOp::DecayGate { log, bias } => {
            let weights = [log, bias].map(|weight| call.weight(weight).f32);
            let places = [inputs[0], weights[0], weights[1], out].map(KernelArgument::Ptr);
            let logarithm = flag(is_logarithm(call.program, call.node.output));
            let numbers = [logarithm, int(rows), int(columns)];
            work.commands.elementwise_2d("decay_gate", rows, columns, &[&places[..], &numbers].concat());
        }
        StateOp::CausalConv1d { taps, weight } => {
            let positions = places(work, call);
            let places = [inputs[0], call.weight(weight).f32, positions, out].map(KernelArgument::Ptr);
            let numbers = [rows, columns, taps].map(int);
            work.commands.elementwise_2d("causal_conv1d", rows, columns, &[&places[..], &numbers].concat());
        }
        StateOp::LinearAttention(recurrence) => {
            let starts = starts(work, call);
            let arguments =
                [&head(call, recurrence, inputs)[..], &[starts, out].map(KernelArgument::Ptr)].concat();
            let groups = recurrence.value_size.div_ceil(COLUMNS);
            let grid = GridSize::new(recurrence.heads, call.sequences().sequences.len(), groups);
            let name = work.commands.kernel_name("linear_attention");
            work.commands.kernel(&name, grid, THREADS, 0, &arguments);
        }
    }
}

pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: StateOp<'_>,
    back: &OpBackward<'_>,
) {
    match op {
        StateOp::DecayGate { log, bias } => decay_gate_backward(work, call, back, log, bias),
        StateOp::CausalConv1d { taps, weight } => causal_conv1d_backward(work, call, back, taps, weight),
        StateOp::LinearAttention(recurrence) => recurrence_backward(work, call, back, recurrence),
    }
}

fn decay_gate_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    log: WeightId,
    bias: WeightId,
) {
    let (rows, columns) = (call.rows, call.columns());
    let weights = [log, bias].map(|weight| call.weight(weight).f32);
    let places = [back.inputs[0], back.gradient, weights[0], weights[1]].map(KernelArgument::Ptr);
    let logarithm = flag(is_logarithm(call.program, call.node.output));
    if let Some(to) = back.input_gradients[0] {
        let numbers = [KernelArgument::Ptr(to.ptr), logarithm, flag(to.accumulate), int(rows), int(columns)];
        work.commands.elementwise_2d("decay_gate_backward", rows, columns, &[&places[..], &numbers].concat());
    }
    for (weight, of_log) in [(log, true), (bias, false)] {
        let to = call.weight(weight).gradient;
        if to > 0 {
            let numbers = [logarithm, flag(of_log), int(rows), int(columns)];
            sum_rows(
                work,
                "decay_gate_weights_backward",
                MatrixShape { rows, columns },
                &[&places[..], &numbers].concat(),
                to,
            );
        }
    }
}

fn causal_conv1d_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    taps: usize,
    weight: WeightId,
) {
    let (rows, columns, positions) = (call.rows, call.columns(), places(work, call));
    let numbers = [rows, columns, taps].map(int);
    if let Some(to) = back.input_gradients[0] {
        let places = [back.gradient, call.weight(weight).f32, positions].map(KernelArgument::Ptr);
        let arguments = [&places[..], &to.arguments(), &numbers].concat();
        work.commands.elementwise_2d("causal_conv1d_backward", rows, columns, &arguments);
    }
    let to = call.weight(weight).gradient;
    if to > 0 {
        let places = [back.inputs[0], back.gradient, positions].map(KernelArgument::Ptr);
        sum_rows(
            work,
            "causal_conv1d_weights_backward",
            MatrixShape { rows, columns: columns * taps },
            &[&places[..], &numbers].concat(),
            to,
        );
    }
}

/// Returns the heads of each input, and the columns of a head.
fn shapes(r: &LinearAttention) -> Vec<[usize; 2]> {
    let tokens = [[r.query_heads, r.key_size], [r.key_heads, r.key_size], [r.value_heads, r.value_size]];
    let rates = [[r.heads, 1], [r.heads, 1]];
    let rates = if r.rule == StateUpdate::GatedDelta { &rates[..] } else { &[] };
    [&tokens[..], rates].concat()
}

/// Returns the kernel arguments of a recurrence: the inputs, then its shape.
fn head(call: &OpCall<'_>, r: &LinearAttention, inputs: &[DevicePtr]) -> Vec<KernelArgument> {
    let place = |input: usize| KernelArgument::Ptr(inputs.get(input).copied().unwrap_or(0));
    let sizes = [r.heads, r.query_heads, r.key_heads, r.value_heads, r.key_size, r.value_size];
    let logarithm = call.node.inputs.get(3).is_some_and(|&decay| is_logarithm(call.program, decay));
    let form = sizes.into_iter().map(int).chain([KernelArgument::Int(number(r.rule)), flag(logarithm)]);
    (0..5).map(place).chain(form).collect()
}

fn recurrence_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    r: &LinearAttention,
) {
    let (rows, texts, shapes) = (call.rows, call.sequences().sequences.len(), shapes(r));
    let mut gradients = [0; 5];
    for (gradient, [_, size]) in gradients.iter_mut().zip(&shapes) {
        *gradient = work.scratch.floats(rows * r.heads * size);
    }
    let sums = work.scratch.floats(2 * rows * r.heads);
    // Every sequence begins a chunk of its own. Without causality there is a single state.
    let lengths = call.sequences().spans().map(ExactSizeIterator::len);
    let rows_kept = lengths.max().unwrap_or(0).min(CHUNK);
    let kept = match r.rule {
        StateUpdate::BidirectionalAdditive => 0,
        StateUpdate::Additive | StateUpdate::GatedDelta => {
            r.heads * COLUMNS * r.key_size.next_multiple_of(LANES)
        }
    };
    let states = work.scratch.floats((rows / CHUNK + texts + 1) * kept);
    let recent = work.scratch.floats(texts * rows_kept * kept);
    let starts = starts(work, call);
    let places = [&[starts, back.gradient], &gradients[..], &[sums, states, recent]].concat();
    let places = places.into_iter().map(KernelArgument::Ptr).chain([int(rows_kept)]);
    let arguments: Vec<KernelArgument> = head(call, r, back.inputs).into_iter().chain(places).collect();
    let name = work.commands.kernel_name("linear_attention_backward");
    work.commands.kernel(&name, GridSize::new(r.heads, texts, 1), THREADS, 0, &arguments);
    for ((to, gradient), [heads, size]) in back.input_gradients.iter().zip(gradients).zip(shapes) {
        let Some(to) = to else { continue };
        let shape = MatrixShape { rows, columns: heads * size };
        sum_shared_heads(work, gradient, *to, shape, HeadShape { heads: r.heads, size });
    }
}

/// The heads of a value.
#[derive(Clone, Copy, Debug)]
struct HeadShape {
    heads: usize,
    /// Columns of a head.
    size: usize,
}

/// Sums what the heads that share columns of an input contribute.
fn sum_shared_heads(
    work: &mut CommandBuilder<'_>,
    gradients: DevicePtr,
    to: GradientTarget,
    MatrixShape { rows, columns }: MatrixShape,
    HeadShape { heads, size }: HeadShape,
) {
    let numbers = [rows, columns, heads, size].map(int);
    let arguments = [&[KernelArgument::Ptr(gradients)], &to.arguments()[..], &numbers].concat();
    work.commands.elementwise_2d("sum_shared_heads", rows, columns, &arguments);
}
