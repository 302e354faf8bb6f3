//! fp8 linear layers: forward, and backward for input and weight. Sums are f32; the output has the dtype of values.
//!
//! The forward pass is here and not in `siskin-cuda`, since its scales follow from the amax history of training.

use siskin_cuda::CommandBuilder;
use siskin_cuda::ops::{OpCall, OpTensors};
use siskin_device::{DeviceMatrix, DevicePtr, Fp8Operands, GemmShape, MatmulCommand, MatrixShape};
use siskin_graph::WeightId;
use siskin_graph::op::Linear;

use super::OpBackward;
use super::call::{GradientColumns, sum_gradient_rows};
use crate::cuda::fp8::{Fp8Cast, Fp8Layouts, Fp8LinearScaling, Fp8Scaling, cast};

/// An fp8 matrix with contiguous rows.
fn table(place: DevicePtr, stride: usize, transposed: bool) -> DeviceMatrix {
    DeviceMatrix { ptr: place, stride, transposed }
}

/// Returns the operands of a matmul.
fn fp8_operands(a: Fp8Scaling, b: Fp8Scaling) -> Fp8Operands {
    Fp8Operands { a: a.fp8(), b: b.fp8() }
}

/// The matrix of a layer, its bias, and its shape.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    weight: WeightId,
    bias: Option<WeightId>,
    width: usize,
    depth: usize,
}

impl Matrix {
    fn of(call: &OpCall<'_>, op: &Linear) -> Option<Self> {
        let &(weight, bias) = op.parts.first()?;
        Some(Self { weight, bias, width: call.weight(weight).rows, depth: call.input(0).columns })
    }

    /// Returns the weight as a tensor to be cast.
    fn cast(self, call: &OpCall<'_>) -> Fp8Cast {
        let Self { weight, width, depth, .. } = self;
        Fp8Cast { from: call.weight(weight).compute, rows: width, columns: depth, stride: depth }
    }
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: &Linear,
    tensors: OpTensors<'_>,
    scaling: Fp8LinearScaling,
) {
    let Some(own) = Matrix::of(call, op) else { return };
    let Matrix { bias, width, depth, .. } = own;
    let x = Fp8Cast { from: tensors.inputs[0], rows: call.rows, columns: depth, stride: depth };
    let x = cast(work, x, scaling.input, Fp8Layouts::PLAIN, scaling.records_amax);
    let matrix = cast(work, own.cast(call), scaling.weight, Fp8Layouts::PLAIN, scaling.records_amax);
    let shape = GemmShape { m: call.rows, n: width, k: depth };
    let (a, b) = (table(x.plain, depth, false), table(matrix.plain, depth, true));
    let out = table(tensors.out, call.stride, false);
    work.commands.matmul(MatmulCommand {
        bias: bias.map_or(0, |bias| call.weight(bias).compute),
        fp8: Some(fp8_operands(scaling.input, scaling.weight)),
        ..MatmulCommand::new(work.commands.precision(), shape, a, b, out)
    });
}

/// Every operand is contiguous along the summed dimension, as fp8 matmuls require.
pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: &Linear,
    back: &OpBackward<'_>,
    scaling: Fp8LinearScaling,
) {
    let Some(own) = Matrix::of(call, op) else { return };
    let Matrix { weight, bias, width, depth } = own;
    let (rows, stride, precision) = (call.rows, call.stride, work.commands.precision());
    if rows == 0 {
        return;
    }
    let to = back.weight_gradient(weight);
    let gradient = Fp8Cast { from: back.gradient, rows, columns: width, stride };
    let layouts = Fp8Layouts { plain: back.input_gradients[0].is_some(), transposed: to > 0 };
    let gradient = cast(work, gradient, scaling.gradient, layouts, scaling.records_amax);
    if let Some(into) = back.input_gradients[0] {
        let matrix = cast(work, own.cast(call), scaling.weight, Fp8Layouts::TRANSPOSED, false);
        let (a, b) =
            (table(gradient.plain, width, false), table(matrix.transposed, matrix.transposed_stride, true));
        let shape = GemmShape { m: rows, n: depth, k: width };
        work.commands.matmul(MatmulCommand {
            accumulate: into.accumulate,
            fp8: Some(fp8_operands(scaling.gradient, scaling.weight)),
            ..MatmulCommand::new(precision, shape, a, b, table(into.ptr, depth, false))
        });
    }
    if to > 0 {
        let x = Fp8Cast { from: back.inputs[0], rows, columns: depth, stride: depth };
        let x = cast(work, x, scaling.input, Fp8Layouts::TRANSPOSED, false);
        let stride = x.transposed_stride;
        let (a, b) = (table(gradient.transposed, stride, false), table(x.transposed, stride, true));
        let shape = GemmShape { m: width, n: depth, k: stride };
        work.commands.matmul(MatmulCommand {
            f32_output: true,
            accumulate: true,
            fp8: Some(fp8_operands(scaling.gradient, scaling.input)),
            ..MatmulCommand::new(precision, shape, a, b, table(to, depth, false))
        });
    }
    let to = bias.map_or(0, |bias| back.weight_gradient(bias));
    if to > 0 {
        let shape = MatrixShape { rows, columns: width };
        sum_gradient_rows(work, GradientColumns { ptr: back.gradient, shape, stride, start: 0 }, to);
    }
}
