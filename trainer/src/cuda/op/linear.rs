//! Linear layers.

use siskin::graph::Op;

use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, eight, sum_rows, whole};
use crate::cuda::Precision;
use crate::cuda::tape::{DeviceMatrix, TapeMatmul};
use crate::program::ProgramNode;

/// Returns some columns of a table as a matrix.
fn part(work: &TapeBuilder<'_>, table: Place, start: usize, stride: usize) -> DeviceMatrix {
    let place = table + (start * work.tape.precision.bytes()) as Place;
    DeviceMatrix { place, stride, turned: false }
}

/// Returns true if tanh-GELU of the output can be a matmul epilogue: cuBLASLt keeps the pre-activation only in 16
/// bits, with rows that are multiples of 16 bytes.
pub(super) fn bends(precision: Precision, node: &ProgramNode, columns: usize) -> bool {
    let one = matches!(&node.op, Op::Linear { parts } if parts.len() == 1);
    one && precision != Precision::F32 && columns.is_multiple_of(precision.wide())
}

/// Runs the layer; `bent`, if not 0, receives GELU of the output.
pub(super) fn forward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, x: Place, [out, bent]: [Place; 2]) {
    let Op::Linear { parts } = &call.node.op else { return };
    if let Some(known) = call.known() {
        return eight::forward(work, call, [x, out], known);
    }
    let (depth, columns) = (call.input(0).columns, call.stride);
    let mut start = 0;
    for &(weight, bias) in parts {
        let width = call.program.weights[weight].rows;
        work.tape.multiply(TapeMatmul {
            precision: work.tape.precision,
            shape: [call.rows, width, depth],
            a: DeviceMatrix { place: x, stride: depth, turned: false },
            b: DeviceMatrix { place: call.weight(weight).numbers, stride: depth, turned: true },
            out: part(work, if bent > 0 { bent } else { out }, start, columns),
            floats: false,
            add: false,
            bias: bias.map_or(0, |bias| call.weight(bias).numbers),
            before: if bent > 0 { out } else { 0 },
            eights: None,
        });
        start += width;
    }
}

pub(super) fn backward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let Op::Linear { parts } = &call.node.op else { return };
    if let Some(known) = call.known() {
        return eight::backward(work, call, back, known);
    }
    let (depth, columns, precision) = (call.input(0).columns, call.stride, work.tape.precision);
    let mut start = 0;
    for (index, &(weight, bias)) in parts.iter().enumerate() {
        let width = call.program.weights[weight].rows;
        let gradient = part(work, back.gradient, start, columns);
        if let Some(to) = back.to[0] {
            work.tape.multiply(TapeMatmul {
                precision,
                shape: [call.rows, depth, width],
                a: gradient,
                b: DeviceMatrix { place: call.weight(weight).numbers, stride: depth, turned: false },
                out: DeviceMatrix { place: to.place, stride: depth, turned: false },
                floats: false,
                add: to.add || index > 0,
                bias: 0,
                before: 0,
                eights: None,
            });
        }
        let to = call.weight(weight).gradient;
        if to > 0 && call.rows > 0 {
            work.tape.multiply(TapeMatmul {
                precision,
                shape: [width, depth, call.rows],
                a: DeviceMatrix { turned: true, ..gradient },
                b: DeviceMatrix { place: back.inputs[0], stride: depth, turned: false },
                out: DeviceMatrix { place: to, stride: depth, turned: false },
                floats: true,
                add: true,
                bias: 0,
                before: 0,
                eights: None,
            });
        }
        let to = bias.map_or(0, |bias| call.weight(bias).gradient);
        if to > 0 {
            let numbers = [call.rows, width, columns, start].map(whole);
            let arguments = [&[KernelArgument::Place(back.gradient)], &numbers[..]].concat();
            sum_rows(work, "sum_rows", [call.rows, width], &arguments, to);
        }
        start += width;
    }
}
