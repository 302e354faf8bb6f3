//! fp8 linear layers: forward, and backward for input and weight. Sums are f32; the output has the dtype of values.

use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, sum_rows, whole};
use crate::cuda::fp8::{Fp8Cast, Fp8Scaling, cast};
use crate::cuda::tape::{DeviceMatrix, TapeMatmul};

/// An fp8 matrix with contiguous rows; transposed if `turned`.
fn table(place: Place, stride: usize, turned: bool) -> DeviceMatrix {
    DeviceMatrix { place, stride, turned }
}

/// Returns the weight and its bias, and the shape.
fn parts(call: &OpCall<'_>) -> Option<(usize, Option<usize>, [usize; 2])> {
    let siskin::graph::Op::Linear { parts } = &call.node.op else { return None };
    let &(weight, bias) = parts.first()?;
    Some((weight, bias, [call.program.weights[weight].rows, call.input(0).columns]))
}

pub(super) fn forward(
    work: &mut TapeBuilder<'_>,
    call: &OpCall<'_>,
    [x, out]: [Place; 2],
    known: [Fp8Scaling; 3],
) {
    let Some((weight, bias, [width, depth])) = parts(call) else { return };
    let own = Fp8Cast { from: x, rows: call.rows, columns: depth, stride: depth };
    let x = cast(work, own, known[0], [true, false], call.keeps);
    let matrix = Fp8Cast { from: call.weight(weight).numbers, rows: width, columns: depth, stride: depth };
    let matrix = cast(work, matrix, known[1], [true, false], call.keeps);
    work.tape.multiply(TapeMatmul {
        precision: work.tape.precision,
        shape: [call.rows, width, depth],
        a: table(x.plain, depth, false),
        b: table(matrix.plain, depth, true),
        out: table(out, call.stride, false),
        floats: false,
        add: false,
        bias: bias.map_or(0, |bias| call.weight(bias).numbers),
        before: 0,
        eights: Some([known[0], known[1]].map(Fp8Scaling::eight)),
    });
}

/// Every operand is contiguous along the summed dimension, as fp8 matmuls require.
pub(super) fn backward(
    work: &mut TapeBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    known: [Fp8Scaling; 3],
) {
    let Some((weight, bias, [width, depth])) = parts(call) else { return };
    let (rows, stride, precision) = (call.rows, call.stride, work.tape.precision);
    if rows == 0 {
        return;
    }
    let to = call.weight(weight).gradient;
    let gradient = Fp8Cast { from: back.gradient, rows, columns: width, stride };
    let gradient = cast(work, gradient, known[2], [back.to[0].is_some(), to > 0], call.keeps);
    let product = |shape: [usize; 3], a: DeviceMatrix, b: DeviceMatrix, out: DeviceMatrix| TapeMatmul {
        precision,
        shape,
        a,
        b,
        out,
        floats: false,
        add: true,
        bias: 0,
        before: 0,
        eights: None,
    };
    if let Some(into) = back.to[0] {
        let matrix =
            Fp8Cast { from: call.weight(weight).numbers, rows: width, columns: depth, stride: depth };
        let matrix = cast(work, matrix, known[1], [false, true], false);
        let (a, b) = (table(gradient.plain, width, false), table(matrix.turned, matrix.turned_stride, true));
        let own = product([rows, depth, width], a, b, table(into.place, depth, false));
        let eights = Some([known[2], known[1]].map(Fp8Scaling::eight));
        work.tape.multiply(TapeMatmul { add: into.add, eights, ..own });
    }
    if to > 0 {
        let x = Fp8Cast { from: back.inputs[0], rows, columns: depth, stride: depth };
        let x = cast(work, x, known[0], [false, true], false);
        let stride = x.turned_stride;
        let (a, b) = (table(gradient.turned, stride, false), table(x.turned, stride, true));
        let own = product([width, depth, stride], a, b, table(to, depth, false));
        let eights = Some([known[2], known[0]].map(Fp8Scaling::eight));
        work.tape.multiply(TapeMatmul { floats: true, eights, ..own });
    }
    let to = bias.map_or(0, |bias| call.weight(bias).gradient);
    if to > 0 {
        let numbers = [rows, width, stride, 0].map(whole);
        let arguments = [&[KernelArgument::Place(back.gradient)], &numbers[..]].concat();
        sum_rows(work, "sum_rows", [rows, width], &arguments, to);
    }
}
