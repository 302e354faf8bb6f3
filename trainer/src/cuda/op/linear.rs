//! Products with matrices.

use siskin::graph::Op;

use super::{Argument, Back, Call, Place, Work, sum_rows, whole};
use crate::cuda::tape::{Matrix, Product};

/// A part of a table's columns, as a matrix.
fn part(work: &Work<'_>, table: Place, start: usize, stride: usize) -> Matrix {
    let place = table + (start * work.tape.precision.bytes()) as Place;
    Matrix { place, stride, turned: false }
}

pub(super) fn forward(work: &mut Work<'_>, call: &Call<'_>, x: Place, out: Place) {
    let Op::Linear { parts } = &call.node.op else { return };
    let (depth, columns) = (call.input(0).columns, call.stride);
    let mut start = 0;
    for &(weight, bias) in parts {
        let width = call.program.weights[weight].rows;
        work.tape.multiply(Product {
            precision: work.tape.precision,
            shape: [call.rows, width, depth],
            a: Matrix { place: x, stride: depth, turned: false },
            b: Matrix { place: call.weight(weight).numbers, stride: depth, turned: true },
            out: part(work, out, start, columns),
            floats: false,
            add: false,
            bias: bias.map_or(0, |bias| call.weight(bias).numbers),
        });
        start += width;
    }
}

pub(super) fn backward(work: &mut Work<'_>, call: &Call<'_>, back: &Back<'_>) {
    let Op::Linear { parts } = &call.node.op else { return };
    let (depth, columns, precision) = (call.input(0).columns, call.stride, work.tape.precision);
    let mut start = 0;
    for (index, &(weight, bias)) in parts.iter().enumerate() {
        let width = call.program.weights[weight].rows;
        let gradient = part(work, back.gradient, start, columns);
        if let Some(to) = back.to[0] {
            work.tape.multiply(Product {
                precision,
                shape: [call.rows, depth, width],
                a: gradient,
                b: Matrix { place: call.weight(weight).numbers, stride: depth, turned: false },
                out: Matrix { place: to.place, stride: depth, turned: false },
                floats: false,
                add: to.add || index > 0,
                bias: 0,
            });
        }
        let to = call.weight(weight).gradient;
        if to > 0 && call.rows > 0 {
            work.tape.multiply(Product {
                precision,
                shape: [width, depth, call.rows],
                a: Matrix { turned: true, ..gradient },
                b: Matrix { place: back.inputs[0], stride: depth, turned: false },
                out: Matrix { place: to, stride: depth, turned: false },
                floats: true,
                add: true,
                bias: 0,
            });
        }
        let to = bias.map_or(0, |bias| call.weight(bias).gradient);
        if to > 0 {
            let numbers = [call.rows, width, columns, start].map(whole);
            let arguments = [&[Argument::Place(back.gradient)], &numbers[..]].concat();
            sum_rows(work, "sum_rows", [call.rows, width], &arguments, to);
        }
        start += width;
    }
}
