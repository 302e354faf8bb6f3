//! The row norms of DoRA adapters, recomputed after each step.

use siskin_device::{
    CommandList, Device, DeviceMatrix, DevicePtr, GemmShape, KernelArgument, MatmulCommand, Precision,
};
use siskin_format::Result;

use super::optimizer::permanent_commands;
use super::weights::DeviceWeights;
use crate::adapters::{AdapterOptions, DoraVectors, TrainedAdapter};
use crate::program::Program;

/// Elements of a matrix that are processed at once.
const MAX_ELEMENTS: usize = 1 << 24;

/// The adapters of a program.
#[derive(Clone, Copy)]
pub struct HostAdapters<'a> {
    /// The adapters.
    pub list: &'a [TrainedAdapter],
    /// Their options.
    pub options: &'a AdapterOptions,
}

/// Builds the command list that updates the inverse row norms of each matrix plus its adapter, some rows at a time.
/// Empty without DoRA adapters.
pub(super) fn row_norms_commands(
    device: &mut dyn Device,
    precision: Precision,
    program: &Program,
    weights: &DeviceWeights,
    adapters: HostAdapters<'_>,
) -> Result<CommandList> {
    permanent_commands(device, precision, |work| {
        for adapter in adapters.list {
            let Some(DoraVectors { inverse_norm: inverse, .. }) = adapter.dora else { continue };
            let [matrix, first, second, inverse] =
                [adapter.base, adapter.a, adapter.b, inverse].map(|weight| weights.list[weight]);
            let (all, columns) =
                (program.graph.weights[adapter.base].rows, program.graph.weights[adapter.base].columns);
            let rank = program.graph.weights[adapter.a].rows;
            let step = (MAX_ELEMENTS / columns.max(1)).clamp(1, all.max(1));
            work.scratch.clear();
            let sum = work.scratch.floats(step * columns);
            for start in (0..all).step_by(step) {
                let rows = step.min(all - start);
                let table =
                    |place: DevicePtr, stride: usize| DeviceMatrix { ptr: place, stride, transposed: false };
                work.commands.matmul(MatmulCommand {
                    precision: Precision::F32,
                    shape: GemmShape { m: rows, n: columns, k: rank },
                    a: table(second.f32 + (4 * start * rank) as DevicePtr, rank),
                    b: table(first.f32, columns),
                    out: table(sum, columns),
                    f32_output: true,
                    accumulate: false,
                    bias: 0,
                    pre_activation: 0,
                    fp8: None,
                });
                let numbers = matrix.compute + (start * columns * precision.bytes()) as DevicePtr;
                let to = inverse.f32 + 4 * start as DevicePtr;
                let arguments = [
                    KernelArgument::Ptr(numbers),
                    KernelArgument::Ptr(sum),
                    KernelArgument::Float(adapters.options.factor() as f32),
                    KernelArgument::Ptr(to),
                    KernelArgument::Int(rows as i32),
                    KernelArgument::Int(columns as i32),
                ];
                work.commands.warp_per_item("inverse_row_norms", rows, &arguments);
            }
        }
    })
}
