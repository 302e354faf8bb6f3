//! Linear attention with a recurrent state of constant size, and its decay gates.

use siskin_device::{DevicePtr, GridSize, KernelArgument};
use siskin_format::Result;
use siskin_graph::op::{DecayGate, LinearAttention, StateUpdate};
use siskin_graph::{Graph, Node, Op, ValueId};

use super::unsupported::no_kernels;
use super::{CudaForward, KernelLimits, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, flag, int};

/// The maximum key size, as in `runtime/cuda/kernels/linear_attention.cu`.
const MAX_KEYS: usize = 256;
/// The state columns per warp.
pub const COLUMNS: usize = 32;
/// The threads of a block.
pub const THREADS: usize = 256;

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
pub fn is_logarithm(graph: &Graph, value: ValueId) -> bool {
    let made = graph.nodes.iter().any(|node| node.output == value && matches!(node.op, Op::DecayGate(_)));
    let only_decays = |node: &Node| {
        let mut inputs = node.inputs.iter().enumerate();
        matches!(node.op, Op::LinearAttention(_))
            && inputs.all(|(place, input)| place == 3 || *input != value)
    };
    made && graph.nodes.iter().filter(|node| node.inputs.contains(&value)).all(only_decays)
}

/// Returns the first row of each sequence, and the end of the last.
pub fn sequence_starts(work: &mut CommandBuilder<'_>, call: &OpCall<'_>) -> DevicePtr {
    let sequences = call.sequences();
    work.tables.ints(&call.table_name("starts of sequences"), || {
        let starts = sequences.spans().map(|span| span.start);
        starts.chain([sequences.rows.len()]).map(|row| row as i32).collect()
    })
}

/// Returns the first arguments of the kernels of linear attention: the inputs, then the shape.
pub fn first_arguments(call: &OpCall<'_>, op: &LinearAttention, inputs: &[DevicePtr]) -> Vec<KernelArgument> {
    let place = |input: usize| KernelArgument::Ptr(inputs.get(input).copied().unwrap_or(0));
    let sizes = [op.heads, op.query_heads, op.key_heads, op.value_heads, op.key_size, op.value_size];
    let logarithm = call.node.inputs.get(3).is_some_and(|&decay| is_logarithm(call.graph, decay));
    let form = sizes.into_iter().map(int).chain([KernelArgument::Int(number(op.rule)), flag(logarithm)]);
    (0..5).map(place).chain(form).collect()
}

impl CudaForward for DecayGate {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let [log, bias] = [self.log, self.bias].map(|weight| call.weight(weight).f32);
        let places = [tensors.inputs[0], log, bias, tensors.out].map(KernelArgument::Ptr);
        let logarithm = flag(is_logarithm(call.graph, call.node.output));
        let numbers = [logarithm, int(call.rows), int(call.columns())];
        let arguments = [&places[..], &numbers].concat();
        work.commands.elementwise_2d("decay_gate", call.rows, call.columns(), &arguments);
    }
}

impl CudaForward for LinearAttention {
    fn check(&self, node: &Node, _: KernelLimits) -> Result<()> {
        if self.key_size > MAX_KEYS { Err(no_kernels(node)) } else { Ok(()) }
    }

    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let starts = sequence_starts(work, call);
        let places = [starts, tensors.out].map(KernelArgument::Ptr);
        let arguments = [&first_arguments(call, self, tensors.inputs)[..], &places].concat();
        let groups = self.value_size.div_ceil(COLUMNS);
        let grid = GridSize::new(self.heads, call.sequences().sequences.len(), groups);
        let name = work.commands.kernel_name("linear_attention");
        work.commands.kernel(&name, grid, THREADS, 0, &arguments);
    }
}
