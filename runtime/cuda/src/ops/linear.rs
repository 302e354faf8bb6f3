//! Linear layers.

use siskin_device::{DeviceMatrix, DevicePtr, GemmShape, MatmulCommand, Precision};
use siskin_graph::Op;
use siskin_graph::op::Linear;

use super::{CudaForward, OpCall, OpTensors};
use crate::command_builder::CommandBuilder;

/// Returns the matrix that begins at column `start` of a table.
pub fn columns_from(table: DevicePtr, start: usize, stride: usize, precision: Precision) -> DeviceMatrix {
    let ptr = table + (start * precision.bytes()) as DevicePtr;
    DeviceMatrix { ptr, stride, transposed: false }
}

/// Returns true if tanh-GELU of the output can be a matmul epilogue: cuBLASLt keeps the pre-activation only in 16
/// bits, with rows that are multiples of 16 bytes.
pub fn fuses_gelu(call: &OpCall<'_>, precision: Precision) -> bool {
    let one = matches!(&call.node.op, Op::Linear(Linear { parts }) if parts.len() == 1);
    one && precision != Precision::F32 && call.columns().is_multiple_of(precision.vector_width())
}

/// The tensors of a linear layer.
#[derive(Clone, Copy, Debug)]
pub struct LinearPtrs {
    /// The input.
    pub x: DevicePtr,
    /// The output.
    pub out: DevicePtr,
    /// Receives GELU of the output, see [`fuses_gelu`]; 0: no GELU.
    pub activated: DevicePtr,
}

/// Appends a linear layer, and the activation after it if there is one.
pub fn linear(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, op: &Linear, ptrs: LinearPtrs) {
    let LinearPtrs { x, out, activated } = ptrs;
    let (depth, precision) = (call.input(0).columns, work.commands.precision());
    let mut start = 0;
    for &(weight, bias) in &op.parts {
        let weight = call.weight(weight);
        let to = if activated > 0 { activated } else { out };
        work.commands.matmul(MatmulCommand {
            bias: bias.map_or(0, |bias| call.weight(bias).compute),
            pre_activation: if activated > 0 { out } else { 0 },
            ..MatmulCommand::new(
                precision,
                GemmShape { m: call.rows, n: weight.rows, k: depth },
                DeviceMatrix { ptr: x, stride: depth, transposed: false },
                DeviceMatrix { ptr: weight.compute, stride: depth, transposed: true },
                columns_from(to, start, call.stride, precision),
            )
        });
        start += weight.rows;
    }
}

impl CudaForward for Linear {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        linear(work, call, self, LinearPtrs { x: tensors.inputs[0], out: tensors.out, activated: 0 });
    }
}
