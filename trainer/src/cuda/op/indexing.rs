//! Slicing, gathering and repeating, and rotary position embedding.

use siskin_cuda::ops::OpCall;
use siskin_cuda::ops::indexing::{ColumnRange, copy_columns, gather_rows};
use siskin_cuda::ops::rope::{RopePtrs, rotate};
use siskin_cuda::{CommandBuilder, int};
use siskin_device::{KernelArgument, MatrixShape};
use siskin_graph::op::{RepeatColumns, Rope, SelectOutputs, SliceColumns};

use super::{CudaBackward, OpBackward};

impl CudaBackward for SliceColumns {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        let (rows, columns, width) = (call.rows, call.columns(), call.input(0).columns);
        if !to.accumulate {
            work.commands.clear(to.ptr, rows * width * work.commands.precision().bytes());
        }
        let from = ColumnRange { ptr: back.gradient, width: columns, start: 0 };
        let to = ColumnRange { ptr: to.ptr, width, start: self.start };
        copy_columns(work, from, to, true, MatrixShape { rows, columns });
    }
}

impl CudaBackward for RepeatColumns {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        let (rows, width) = (call.rows, call.input(0).columns);
        let numbers = [self.times, rows, width].map(int);
        let arguments = [&[KernelArgument::Ptr(back.gradient)], &to.arguments()[..], &numbers].concat();
        work.commands.elementwise_2d("repeat_columns_backward", rows, width, &arguments);
    }
}

impl CudaBackward for SelectOutputs {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        let sequences = call.sequences();
        let rows = sequences.rows.len();
        let list = work.tables.ints(&call.table_name("outputs of rows"), || {
            let mut outputs = vec![-1; rows];
            let places = sequences.output_rows.iter().enumerate();
            places.for_each(|(output, &row)| outputs[row] = output as i32);
            outputs
        });
        gather_rows(work, back.gradient, list, to, MatrixShape { rows, columns: call.columns() });
    }
}

impl CudaBackward for Rope {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        rotate(work, call, self, RopePtrs { x: back.gradient, to, inverse: true });
    }
}
