//! Linear layers.

use siskin_device::{
    DeviceMatrix, DevicePtr, GemmShape, KernelArgument, MatmulCommand, MatrixShape, Precision,
};
use siskin_graph::{Node, Op, op};

use super::call::{OpBackward, OpCall, sum_rows};
use super::fp8_linear;
use crate::cuda::command_builder::{CommandBuilder, int};

/// Returns some columns of a table as a matrix.
fn part(work: &CommandBuilder<'_>, table: DevicePtr, start: usize, stride: usize) -> DeviceMatrix {
    let place = table + (start * work.commands.precision().bytes()) as DevicePtr;
    DeviceMatrix { ptr: place, stride, transposed: false }
}

/// Returns true if tanh-GELU of the output can be a matmul epilogue: cuBLASLt keeps the pre-activation only in 16
/// bits, with rows that are multiples of 16 bytes.
pub(super) fn fuses_gelu(precision: Precision, node: &Node, columns: usize) -> bool {
    let one = matches!(&node.op, Op::Linear(op::Linear { parts }) if parts.len() == 1);
    one && precision != Precision::F32 && columns.is_multiple_of(precision.vector_width())
}

/// The tensors of a linear layer.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct LinearPtrs {
    pub(in crate::cuda) x: DevicePtr,
    pub(in crate::cuda) out: DevicePtr,
    /// Receives GELU of the output; 0: no GELU.
    pub(in crate::cuda) activated: DevicePtr,
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    LinearPtrs { x, out, activated }: LinearPtrs,
) {
    let Op::Linear(op::Linear { parts }) = &call.node.op else { return };
    if let Some(known) = call.fp8_scaling() {
        return fp8_linear::forward(work, call, x, out, known);
    }
    let (depth, columns) = (call.input(0).columns, call.stride);
    let mut start = 0;
    for &(weight, bias) in parts {
        let width = call.program.graph.weights[weight].rows;
        work.commands.matmul(MatmulCommand {
            precision: work.commands.precision(),
            shape: GemmShape { m: call.rows, n: width, k: depth },
            a: DeviceMatrix { ptr: x, stride: depth, transposed: false },
            b: DeviceMatrix { ptr: call.weight(weight).compute, stride: depth, transposed: true },
            out: part(work, if activated > 0 { activated } else { out }, start, columns),
            f32_output: false,
            accumulate: false,
            bias: bias.map_or(0, |bias| call.weight(bias).compute),
            pre_activation: if activated > 0 { out } else { 0 },
            fp8: None,
        });
        start += width;
    }
}

pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let Op::Linear(op::Linear { parts }) = &call.node.op else { return };
    if let Some(known) = call.fp8_scaling() {
        return fp8_linear::backward(work, call, back, known);
    }
    let (depth, columns, precision) = (call.input(0).columns, call.stride, work.commands.precision());
    let mut start = 0;
    for (index, &(weight, bias)) in parts.iter().enumerate() {
        let width = call.program.graph.weights[weight].rows;
        let gradient = part(work, back.gradient, start, columns);
        if let Some(to) = back.input_gradients[0] {
            work.commands.matmul(MatmulCommand {
                precision,
                shape: GemmShape { m: call.rows, n: depth, k: width },
                a: gradient,
                b: DeviceMatrix { ptr: call.weight(weight).compute, stride: depth, transposed: false },
                out: DeviceMatrix { ptr: to.ptr, stride: depth, transposed: false },
                f32_output: false,
                accumulate: to.accumulate || index > 0,
                bias: 0,
                pre_activation: 0,
                fp8: None,
            });
        }
        let to = call.weight(weight).gradient;
        if to > 0 && call.rows > 0 {
            work.commands.matmul(MatmulCommand {
                precision,
                shape: GemmShape { m: width, n: depth, k: call.rows },
                a: DeviceMatrix { transposed: true, ..gradient },
                b: DeviceMatrix { ptr: back.inputs[0], stride: depth, transposed: false },
                out: DeviceMatrix { ptr: to, stride: depth, transposed: false },
                f32_output: true,
                accumulate: true,
                bias: 0,
                pre_activation: 0,
                fp8: None,
            });
        }
        let to = bias.map_or(0, |bias| call.weight(bias).gradient);
        if to > 0 {
            let numbers = [call.rows, width, columns, start].map(int);
            let arguments = [&[KernelArgument::Ptr(back.gradient)], &numbers[..]].concat();
            sum_rows(work, "sum_rows", MatrixShape { rows: call.rows, columns: width }, &arguments, to);
        }
        start += width;
    }
}
