//! Linear layers.

use siskin_cuda::CommandBuilder;
use siskin_cuda::ops::OpCall;
use siskin_cuda::ops::linear::columns_from;
use siskin_device::{DeviceMatrix, GemmShape, MatmulCommand, MatrixShape};
use siskin_graph::op::Linear;

use super::call::{GradientColumns, sum_gradient_rows};
use super::{CudaBackward, OpBackward, fp8_linear};

impl CudaBackward for Linear {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        if let Some(scaling) = back.fp8 {
            return fp8_linear::backward(work, call, self, back, scaling);
        }
        let (rows, depth, stride) = (call.rows, call.input(0).columns, call.stride);
        let precision = work.commands.precision();
        let matrix = |ptr| DeviceMatrix { ptr, stride: depth, transposed: false };
        let mut start = 0;
        for (index, &(weight, bias)) in self.parts.iter().enumerate() {
            let width = call.weight(weight).rows;
            let gradient = columns_from(back.gradient, start, stride, precision);
            if let Some(to) = back.input_gradients[0] {
                let shape = GemmShape { m: rows, n: depth, k: width };
                let b = matrix(call.weight(weight).compute);
                work.commands.matmul(MatmulCommand {
                    accumulate: to.accumulate || index > 0,
                    ..MatmulCommand::new(precision, shape, gradient, b, matrix(to.ptr))
                });
            }
            let to = back.weight_gradient(weight);
            if to > 0 && rows > 0 {
                let shape = GemmShape { m: width, n: depth, k: rows };
                let a = DeviceMatrix { transposed: true, ..gradient };
                work.commands.matmul(MatmulCommand {
                    f32_output: true,
                    accumulate: true,
                    ..MatmulCommand::new(precision, shape, a, matrix(back.inputs[0]), matrix(to))
                });
            }
            let to = bias.map_or(0, |bias| back.weight_gradient(bias));
            if to > 0 {
                let shape = MatrixShape { rows, columns: width };
                let gradient = GradientColumns { ptr: back.gradient, shape, stride, start };
                sum_gradient_rows(work, gradient, to);
            }
            start += width;
        }
    }
}
