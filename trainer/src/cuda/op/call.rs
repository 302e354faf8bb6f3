//! The arguments of operations.

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_graph::{Node, ValueShape};

use crate::batch::{BatchSequences, TrainingBatch};
use crate::cuda::command_builder::{CommandBuilder, flag, int};
use crate::cuda::fp8::Fp8LinearScaling;
use crate::cuda::weights::{DeviceWeight, DeviceWeights};
use crate::program::{Program, Side};

/// The arguments of an operation.
#[derive(Clone, Copy)]
pub(in crate::cuda) struct OpCall<'a> {
    pub(in crate::cuda) program: &'a Program,
    pub(in crate::cuda) node: &'a Node,
    pub(in crate::cuda) batch: &'a TrainingBatch,
    pub(in crate::cuda) weights: &'a DeviceWeights,
    /// Rows of the output.
    pub(in crate::cuda) rows: usize,
    /// Elements from a row of the output to the next: the columns, except where the output of a matmul is padded.
    pub(in crate::cuda) stride: usize,
    /// Whether the amax of fp8 tensors is recorded.
    pub(in crate::cuda) records_amax: bool,
}

impl<'a> OpCall<'a> {
    /// Returns the scaling state of an fp8 matmul's tensors; `None` without fp8.
    pub(in crate::cuda) fn fp8_scaling(&self) -> Option<Fp8LinearScaling> {
        self.weights.fp8.as_ref()?.of(self.node)
    }

    pub(in crate::cuda) fn output(&self) -> ValueShape {
        self.program.graph.values[self.node.output]
    }

    pub(in crate::cuda) fn input(&self, index: usize) -> ValueShape {
        self.program.graph.values[self.node.inputs[index]]
    }

    pub(in crate::cuda) fn columns(&self) -> usize {
        self.output().columns
    }

    /// Returns the number of elements of the output.
    pub(in crate::cuda) fn count(&self) -> usize {
        self.rows * self.columns()
    }

    /// Returns the sequences that the rows belong to.
    pub(in crate::cuda) fn sequences(&self) -> &'a BatchSequences {
        self.program.sequences(self.node.output, self.batch)
    }

    /// Returns a name for tables that all operations on these sequences share.
    pub(in crate::cuda) fn name(&self, what: &str) -> String {
        format!("{what} {:?}", self.program.sides[self.node.output])
    }

    /// Returns the sequences that the rows of an input belong to.
    pub(in crate::cuda) fn input_sequences(&self, index: usize) -> &'a BatchSequences {
        self.program.sequences(self.node.inputs[index], self.batch)
    }

    pub(in crate::cuda) fn input_side(&self, index: usize) -> Side {
        self.program.sides[self.node.inputs[index]]
    }

    pub(in crate::cuda) fn weight(&self, weight: usize) -> DeviceWeight {
        self.weights.list[weight]
    }
}

/// The gradient of an input, and whether it is accumulated into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cuda) struct GradientTarget {
    pub(in crate::cuda) ptr: DevicePtr,
    pub(in crate::cuda) accumulate: bool,
}

impl GradientTarget {
    /// Returns the arguments of a kernel.
    pub(in crate::cuda) fn arguments(self) -> [KernelArgument; 2] {
        [KernelArgument::Ptr(self.ptr), flag(self.accumulate)]
    }
}

/// The inputs and outputs of a backward pass. Places of unused tensors are 0.
pub(in crate::cuda) struct OpBackward<'a> {
    pub(in crate::cuda) inputs: &'a [DevicePtr],
    pub(in crate::cuda) output: DevicePtr,
    pub(in crate::cuda) saved: DevicePtr,
    pub(in crate::cuda) gradient: DevicePtr,
    /// One for each input; `None` if not needed.
    pub(in crate::cuda) input_gradients: &'a [Option<GradientTarget>],
}

/// Rows that one block sums: fixed, so that sums are the same on every device.
const PART: usize = 128;

/// Adds sums over rows to the gradient of a weight. `kernel` takes `arguments`, then the number of rows per part, and
/// where the sums of each part go.
pub(in crate::cuda) fn sum_rows(
    work: &mut CommandBuilder<'_>,
    kernel: &str,
    MatrixShape { rows, columns }: MatrixShape,
    arguments: &[KernelArgument],
    to: DevicePtr,
) {
    let parts = rows.div_ceil(PART);
    let sums = work.scratch.floats(parts * columns);
    let arguments = [arguments, &[int(PART), KernelArgument::Ptr(sums)]].concat();
    let name = work.commands.kernel_name(kernel);
    let blocks = columns.div_ceil(32 * work.commands.precision().vector_width());
    work.commands.kernel(&name, GridSize::new(parts, blocks, 1), 256, 0, &arguments);
    if parts > 0 {
        let arguments = [KernelArgument::Ptr(sums), int(parts), int(columns), KernelArgument::Ptr(to)];
        work.commands.kernel("reduce_parts", GridSize::linear(columns.div_ceil(32)), 1024, 0, &arguments);
    }
}
