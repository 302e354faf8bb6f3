//! Mixture of experts. The device sorts choices by expert, so that the command list does not depend on the routing.

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape, Precision};
use siskin_format::{Error, Result};
use siskin_graph::op::{Combine, Dispatch, ExpertLinear, Route};
use siskin_graph::{Node, Routing, WeightId};

use super::{CudaForward, Destination, KernelLimits, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, flag, int};

/// Choices that a block sorts.
const CHOICES: usize = 256;
/// Rows and columns of a matmul tile.
pub const SIDE: usize = 64;
/// Threads of a matmul tile.
pub const THREADS: usize = 128;

/// Returns the maximum number of experts whose indices a dtype represents exactly.
fn max_experts(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 1 << 24,
        Precision::Bf16 => 1 << 8,
        Precision::Fp16 => 1 << 11,
    }
}

/// The slot of each choice.
#[derive(Clone, Copy, Debug)]
pub struct ExpertSlots {
    /// The first slot of each expert, and the end of the last.
    pub starts: DevicePtr,
    /// The slot of each choice.
    pub places: DevicePtr,
    /// The choice of each slot.
    pub owners: DevicePtr,
    /// Experts that each row chooses.
    pub chosen: usize,
}

/// Returns the number of choices of all rows.
pub fn choices(call: &OpCall<'_>, routing: &Routing) -> usize {
    call.sequences().rows.len() * routing.top_k
}

impl ExpertSlots {
    /// Sorts choices by expert; `routed` is the output of the router.
    pub fn new(
        work: &mut CommandBuilder<'_>,
        call: &OpCall<'_>,
        routing: &Routing,
        routed: DevicePtr,
    ) -> Self {
        let (count, sequences) = (choices(call, routing), call.sequences());
        let blocks = count.div_ceil(CHOICES);
        let first_rows = work.tables.ints(&call.table_name("first rows"), || {
            let first = |sequence: usize| sequences.sequences[sequence].rows.start as i32;
            sequences.rows.iter().map(|row| first(row.sequence)).collect()
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
        Self { starts, places, owners, chosen: routing.top_k }
    }

    /// Copies rows to the slots of their experts: a matrix of this shape.
    pub fn dispatch(
        &self,
        work: &mut CommandBuilder<'_>,
        rows: RoutedRows,
        to: Destination,
        shape: MatrixShape,
    ) {
        self.move_rows(work, "dispatch", self.owners, rows, MovedTo { to, shape });
    }

    /// Sums slots into rows: a matrix of this shape.
    pub fn combine(
        &self,
        work: &mut CommandBuilder<'_>,
        rows: RoutedRows,
        to: Destination,
        shape: MatrixShape,
    ) {
        self.move_rows(work, "combine", self.places, rows, MovedTo { to, shape });
    }

    fn move_rows(
        &self,
        work: &mut CommandBuilder<'_>,
        kernel: &str,
        places: DevicePtr,
        RoutedRows { from, routed }: RoutedRows,
        MovedTo { to, shape: MatrixShape { rows, columns } }: MovedTo,
    ) {
        let places = [from, routed, places].map(KernelArgument::Ptr);
        let arguments = [&places[..], &to.arguments(), &[rows, columns, self.chosen].map(int)].concat();
        work.commands.elementwise_2d(kernel, rows, columns, &arguments);
    }
}

/// The rows that are moved.
#[derive(Clone, Copy, Debug)]
pub struct RoutedRows {
    /// The rows.
    pub from: DevicePtr,
    /// The output of the router, whose weights they are multiplied by; 0: unweighted.
    pub routed: DevicePtr,
}

/// Where rows are moved to.
#[derive(Clone, Copy, Debug)]
struct MovedTo {
    to: Destination,
    shape: MatrixShape,
}

/// Writes a list of one pointer per expert.
pub fn pointers(
    work: &mut CommandBuilder<'_>,
    name: &str,
    places: impl Iterator<Item = DevicePtr>,
) -> KernelArgument {
    KernelArgument::Ptr(work.tables.table(name, || places.flat_map(u64::to_le_bytes).collect()))
}

/// Returns a list of the places of one weight per expert.
pub fn weight_pointers(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    weights: &[WeightId],
) -> KernelArgument {
    let places = weights.iter().map(|&weight| call.weight(weight).compute);
    pointers(work, &format!("experts {weights:?}"), places)
}

/// Returns the shared memory of a matmul, in bytes.
pub fn shared_memory(precision: Precision) -> usize {
    2 * SIDE * (SIDE + precision.vector_width()) * precision.bytes()
}

impl CudaForward for Route {
    fn check(&self, _: &Node, KernelLimits { precision, .. }: KernelLimits) -> Result<()> {
        let max = max_experts(precision);
        if self.routing.experts <= max {
            return Ok(());
        }
        let message =
            format!("more than {max} experts are not supported in this precision; use precision = \"f32\"");
        Err(Error::unsupported("precision", message))
    }

    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let routing = &self.routing;
        let sizes = [call.rows, routing.experts, routing.top_k].map(int);
        let places = [tensors.inputs[0], tensors.out].map(KernelArgument::Ptr);
        let arguments = [&places[..], &sizes, &[flag(routing.normalize)]].concat();
        let name = work.commands.kernel_name("route");
        work.commands.kernel(&name, GridSize::linear(call.rows.div_ceil(256)), 256, 0, &arguments);
    }
}

impl CudaForward for Dispatch {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let slots = ExpertSlots::new(work, call, &self.routing, tensors.inputs[1]);
        let rows = RoutedRows { from: tensors.inputs[0], routed: 0 };
        let shape = MatrixShape { rows: call.rows, columns: call.columns() };
        slots.dispatch(work, rows, Destination::overwrite(tensors.out), shape);
    }
}

impl CudaForward for Combine {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let slots = ExpertSlots::new(work, call, &self.routing, tensors.inputs[1]);
        let rows = RoutedRows { from: tensors.inputs[0], routed: tensors.inputs[1] };
        let shape = MatrixShape { rows: call.rows, columns: call.columns() };
        slots.combine(work, rows, Destination::overwrite(tensors.out), shape);
    }
}

impl CudaForward for ExpertLinear {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let (rows, columns, experts) = (call.rows, call.columns(), self.routing.experts);
        let slots = ExpertSlots::new(work, call, &self.routing, tensors.inputs[1]);
        let depth = call.input(0).columns;
        let matrices = weight_pointers(work, call, &self.weights);
        let biases = match self.biases.is_empty() {
            true => KernelArgument::Ptr(0),
            false => weight_pointers(work, call, &self.biases),
        };
        let arguments = [
            &[KernelArgument::Ptr(tensors.inputs[0]), matrices, biases][..],
            &[slots.starts, tensors.out].map(KernelArgument::Ptr),
            &[rows, depth, columns, experts].map(int),
        ];
        let name = work.commands.kernel_name("expert_linear");
        let grid = GridSize::new(columns.div_ceil(SIDE), rows.div_ceil(SIDE) + experts + 1, 1);
        let shared = shared_memory(work.commands.precision());
        work.commands.kernel(&name, grid, THREADS, shared, &arguments.concat());
    }
}
