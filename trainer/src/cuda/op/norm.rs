//! Normalization of groups of columns.

use siskin_cuda::ops::norm::{l2_arguments, shape_arguments};
use siskin_cuda::ops::{Destination, OpCall};
use siskin_cuda::{CommandBuilder, flag, int};
use siskin_device::{KernelArgument, MatrixShape};
use siskin_graph::op::{L2Normalize, Norm};

use super::call::{GradientColumns, sum_gradient_rows, sum_rows};
use super::{CudaBackward, OpBackward};

impl CudaBackward for L2Normalize {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        let places = [back.inputs[0], back.gradient].map(KernelArgument::Ptr);
        let arguments = [&places[..], &to.arguments(), &l2_arguments(call, self)].concat();
        work.commands.warp_per_item("l2_normalize_backward", call.count() / self.group, &arguments);
    }
}

impl CudaBackward for Norm {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let (x, runs, weight) = (back.inputs[0], call.count() / self.group, call.weight(self.weight));
        let left = work.scratch.floats(2 * runs);
        let to = back.input_gradients[0].unwrap_or(Destination::overwrite(0));
        let places = [x, back.gradient, to.ptr, weight.f32, left].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[flag(to.accumulate)], &shape_arguments(call, self)].concat();
        work.commands.warp_per_item("norm_backward", runs, &arguments);
        // Factors repeat across groups: rows of the sums are as wide as there are factors.
        let columns = weight.count();
        let shape = MatrixShape { rows: call.count() / columns, columns };
        let to = back.weight_gradient(self.weight);
        if to > 0 {
            let places = [x, back.gradient, left].map(KernelArgument::Ptr);
            let arguments = [&places[..], &[self.group, shape.rows, columns].map(int)].concat();
            sum_rows(work, "sum_normalized", shape, &arguments, to);
        }
        let to = self.bias.map_or(0, |bias| back.weight_gradient(bias));
        if to > 0 {
            let gradient = GradientColumns { ptr: back.gradient, shape, stride: columns, start: 0 };
            sum_gradient_rows(work, gradient, to);
        }
    }
}
