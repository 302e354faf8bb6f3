//! The arguments of backward passes.

use siskin_cuda::ops::Destination;
use siskin_cuda::{CommandBuilder, int};
use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_graph::WeightId;

use crate::cuda::fp8::Fp8LinearScaling;

/// The inputs and outputs of a backward pass. Places of unused tensors are 0.
pub(in crate::cuda) struct OpBackward<'a> {
    pub(in crate::cuda) inputs: &'a [DevicePtr],
    pub(in crate::cuda) output: DevicePtr,
    pub(in crate::cuda) saved: DevicePtr,
    pub(in crate::cuda) gradient: DevicePtr,
    /// One for each input; `None` if not needed.
    pub(in crate::cuda) input_gradients: &'a [Option<Destination>],
    /// The gradients of all weights, as f32, which are accumulated into; 0: not trained.
    pub(in crate::cuda) weight_gradients: &'a [DevicePtr],
    /// The scaling of a matmul in fp8.
    pub(in crate::cuda) fp8: Option<Fp8LinearScaling>,
}

impl OpBackward<'_> {
    /// Returns the gradient of a weight; 0: not trained.
    pub(super) fn weight_gradient(&self, weight: WeightId) -> DevicePtr {
        self.weight_gradients[weight]
    }
}

/// Rows that one block sums: fixed, so that sums are the same on every device.
const PART: usize = 128;

/// Adds sums over rows to the gradient of a weight. `kernel` takes `arguments`, then the number of rows per part, and
/// where the sums of each part go.
pub(super) fn sum_rows(
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

/// Adds the sums of columns of a gradient over rows to the gradient of a bias.
pub(super) fn sum_gradient_rows(work: &mut CommandBuilder<'_>, gradient: GradientColumns, to: DevicePtr) {
    let GradientColumns { ptr, shape, stride, start } = gradient;
    let numbers = [shape.rows, shape.columns, stride, start].map(int);
    let arguments = [&[KernelArgument::Ptr(ptr)], &numbers[..]].concat();
    sum_rows(work, "sum_rows", shape, &arguments, to);
}

/// Columns of a gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct GradientColumns {
    pub(super) ptr: DevicePtr,
    /// Rows, and the number of columns.
    pub(super) shape: MatrixShape,
    /// Elements from a row to the next.
    pub(super) stride: usize,
    /// The first column.
    pub(super) start: usize,
}
