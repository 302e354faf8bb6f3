//! im2col over positions: neighboring rows, side by side.

use siskin_cuda::ops::OpCall;
use siskin_cuda::ops::im2col::{parts, table_name};
use siskin_cuda::{CommandBuilder, int};
use siskin_device::KernelArgument;
use siskin_graph::op::Im2col;

use super::{CudaBackward, OpBackward};

impl CudaBackward for Im2col {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        let input = call.input(0);
        let (rows, offsets) = (call.sequences().row_counts().of(input.rows), self.offsets.len());
        let list = work.tables.ints(&table_name(call, self, "im2col gradient"), || {
            // At each offset, an input row is a part of at most one output row.
            let mut owners = vec![-1; rows * offsets];
            for (part, place) in parts(call, self).into_iter().enumerate() {
                let Some(place) = place else { continue };
                owners[place * offsets + part % offsets] = part as i32;
            }
            owners
        });
        let places = [back.gradient, list].map(KernelArgument::Ptr);
        let arguments = [&places[..], &to.arguments(), &[rows, input.columns, offsets].map(int)].concat();
        work.commands.elementwise_2d("col2im", rows, input.columns, &arguments);
    }
}
