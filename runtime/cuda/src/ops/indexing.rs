//! Slicing, gathering and repeating.

use siskin_device::{DevicePtr, KernelArgument, MatrixShape};
use siskin_graph::op::{RepeatColumns, SelectOutputs, SliceColumns};

use super::{CudaForward, Destination, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, flag, int};

/// Some columns of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct ColumnRange {
    /// The matrix.
    pub ptr: DevicePtr,
    /// The columns of the matrix.
    pub width: usize,
    /// The first column of the range.
    pub start: usize,
}

/// Copies a range of columns from one matrix to another, or adds it; `shape` is that of the range.
pub fn copy_columns(
    work: &mut CommandBuilder<'_>,
    from: ColumnRange,
    to: ColumnRange,
    accumulate: bool,
    shape: MatrixShape,
) {
    let MatrixShape { rows, columns } = shape;
    let places = [from.ptr, to.ptr].map(KernelArgument::Ptr);
    let numbers = [rows, columns, from.width, from.start, to.width, to.start].map(int);
    let arguments = [&places[..], &[flag(accumulate)], &numbers].concat();
    work.commands.elementwise_2d("copy_columns", rows, columns, &arguments);
}

/// Copies rows, or adds them: `list` is the place of a list of the row for each row of the output, -1 for zeros;
/// `shape` is that of the output.
pub fn gather_rows(
    work: &mut CommandBuilder<'_>,
    from: DevicePtr,
    list: DevicePtr,
    to: Destination,
    shape: MatrixShape,
) {
    let MatrixShape { rows, columns } = shape;
    let places = [from, list].map(KernelArgument::Ptr);
    let arguments = [&places[..], &to.arguments(), &[int(rows), int(columns)]].concat();
    work.commands.elementwise_2d("gather_rows", rows, columns, &arguments);
}

impl CudaForward for SliceColumns {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let (rows, columns) = (call.rows, call.columns());
        let from = ColumnRange { ptr: tensors.inputs[0], width: call.input(0).columns, start: self.start };
        let to = ColumnRange { ptr: tensors.out, width: columns, start: 0 };
        copy_columns(work, from, to, false, MatrixShape { rows, columns });
    }
}

impl CudaForward for RepeatColumns {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let places = [tensors.inputs[0], tensors.out].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[self.times, call.rows, call.input(0).columns].map(int)].concat();
        work.commands.elementwise_2d("repeat_columns", call.rows, call.columns(), &arguments);
    }
}

impl CudaForward for SelectOutputs {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let outputs = &call.sequences().output_rows;
        let list = work
            .tables
            .ints(&call.table_name("output rows"), || outputs.iter().map(|&row| row as i32).collect());
        let shape = MatrixShape { rows: call.rows, columns: call.columns() };
        gather_rows(work, tensors.inputs[0], list, Destination::overwrite(tensors.out), shape);
    }
}
