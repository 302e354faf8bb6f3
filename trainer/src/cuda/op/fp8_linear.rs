//! fp8 linear layers: forward, and backward for input and weight. Sums are f32; the output has the dtype of values.

use siskin_device::{
    DeviceMatrix, DevicePtr, Fp8Operands, GemmShape, KernelArgument, MatmulCommand, MatrixShape,
};

use super::call::{OpBackward, OpCall, sum_rows};
use crate::cuda::command_builder::{CommandBuilder, int};
use crate::cuda::fp8::{Fp8Cast, Fp8Layouts, Fp8LinearScaling, Fp8Scaling, cast};

/// An fp8 matrix with contiguous rows.
fn table(place: DevicePtr, stride: usize, transposed: bool) -> DeviceMatrix {
    DeviceMatrix { ptr: place, stride, transposed }
}

/// Returns the operands of a matmul.
fn fp8_operands(a: Fp8Scaling, b: Fp8Scaling) -> Fp8Operands {
    Fp8Operands { a: a.fp8(), b: b.fp8() }
}

/// Returns the weight and its bias, and the shape.
fn parts(call: &OpCall<'_>) -> Option<(usize, Option<usize>, [usize; 2])> {
    let siskin_graph::Op::Linear(siskin_graph::op::Linear { parts }) = &call.node.op else { return None };
    let &(weight, bias) = parts.first()?;
    Some((weight, bias, [call.program.graph.weights[weight].rows, call.input(0).columns]))
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    x: DevicePtr,
    out: DevicePtr,
    known: Fp8LinearScaling,
) {
    let Some((weight, bias, [width, depth])) = parts(call) else { return };
    let own = Fp8Cast { from: x, rows: call.rows, columns: depth, stride: depth };
    let x = cast(work, own, known.input, Fp8Layouts::PLAIN, call.records_amax);
    let matrix = Fp8Cast { from: call.weight(weight).compute, rows: width, columns: depth, stride: depth };
    let matrix = cast(work, matrix, known.weight, Fp8Layouts::PLAIN, call.records_amax);
    work.commands.matmul(MatmulCommand {
        precision: work.commands.precision(),
        shape: GemmShape { m: call.rows, n: width, k: depth },
        a: table(x.plain, depth, false),
        b: table(matrix.plain, depth, true),
        out: table(out, call.stride, false),
        f32_output: false,
        accumulate: false,
        bias: bias.map_or(0, |bias| call.weight(bias).compute),
        pre_activation: 0,
        fp8: Some(fp8_operands(known.input, known.weight)),
    });
}

/// Every operand is contiguous along the summed dimension, as fp8 matmuls require.
pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    known: Fp8LinearScaling,
) {
    let Some((weight, bias, [width, depth])) = parts(call) else { return };
    let (rows, stride, precision) = (call.rows, call.stride, work.commands.precision());
    if rows == 0 {
        return;
    }
    let to = call.weight(weight).gradient;
    let gradient = Fp8Cast { from: back.gradient, rows, columns: width, stride };
    let gradient = cast(
        work,
        gradient,
        known.gradient,
        Fp8Layouts { plain: back.input_gradients[0].is_some(), transposed: to > 0 },
        call.records_amax,
    );
    let product = |shape: GemmShape, a: DeviceMatrix, b: DeviceMatrix, out: DeviceMatrix| MatmulCommand {
        accumulate: true,
        ..MatmulCommand::new(precision, shape, a, b, out)
    };
    if let Some(into) = back.input_gradients[0] {
        let matrix =
            Fp8Cast { from: call.weight(weight).compute, rows: width, columns: depth, stride: depth };
        let matrix = cast(work, matrix, known.weight, Fp8Layouts::TRANSPOSED, false);
        let (a, b) =
            (table(gradient.plain, width, false), table(matrix.transposed, matrix.transposed_stride, true));
        let own = product(GemmShape { m: rows, n: depth, k: width }, a, b, table(into.ptr, depth, false));
        let fp8 = Some(fp8_operands(known.gradient, known.weight));
        work.commands.matmul(MatmulCommand { accumulate: into.accumulate, fp8, ..own });
    }
    if to > 0 {
        let x = Fp8Cast { from: back.inputs[0], rows, columns: depth, stride: depth };
        let x = cast(work, x, known.input, Fp8Layouts::TRANSPOSED, false);
        let stride = x.transposed_stride;
        let (a, b) = (table(gradient.transposed, stride, false), table(x.transposed, stride, true));
        let own = product(GemmShape { m: width, n: depth, k: stride }, a, b, table(to, depth, false));
        let fp8 = Some(fp8_operands(known.gradient, known.input));
        work.commands.matmul(MatmulCommand { f32_output: true, fp8, ..own });
    }
    let to = bias.map_or(0, |bias| call.weight(bias).gradient);
    if to > 0 {
        let numbers = [rows, width, stride, 0].map(int);
        let arguments = [&[KernelArgument::Ptr(back.gradient)], &numbers[..]].concat();
        sum_rows(work, "sum_rows", MatrixShape { rows, columns: width }, &arguments, to);
    }
}
