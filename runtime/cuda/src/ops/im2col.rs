//! im2col over positions: neighboring rows, side by side.

use siskin_device::KernelArgument;
use siskin_graph::op::Im2col;

use super::{CudaForward, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, int};

/// Returns the input row of each part of each output row; `None` beyond the ends of a sequence.
pub fn parts(call: &OpCall<'_>, op: &Im2col) -> Vec<Option<usize>> {
    let (from, to, sequences) = (call.input(0).rows, call.output().rows, call.sequences());
    let of_row = |row| {
        let neighbor = move |&offset: &isize| sequences.neighbor(from, to, row, offset, op.stride);
        op.offsets.iter().map(neighbor)
    };
    (0..call.rows).flat_map(of_row).collect()
}

/// Returns a name for tables of operations with these parameters.
pub fn table_name(call: &OpCall<'_>, op: &Im2col, what: &str) -> String {
    call.table_name(&format!("{what} {:?} {} of {:?}", op.offsets, op.stride, call.input(0).rows))
}

impl CudaForward for Im2col {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let number = |place: Option<usize>| place.map_or(-1, |place| place as i32);
        let list = work
            .tables
            .ints(&table_name(call, self, "im2col"), || parts(call, self).into_iter().map(number).collect());
        let (columns, offsets) = (call.input(0).columns, self.offsets.len());
        let places = [tensors.inputs[0], list, tensors.out].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[call.rows, columns, offsets].map(int)].concat();
        work.commands.elementwise_2d("im2col", call.rows * offsets, columns, &arguments);
    }
}
