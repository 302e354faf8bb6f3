//! im2col over positions: neighboring rows, side by side.

use siskin_graph::op::Im2col;

use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::real::Real;

/// Returns the input row at `offset` from the one that matches output row `row`.
fn of_call<T: Real>(call: &RuleCall<'_, T>, row: usize, offset: isize, stride: usize) -> Option<usize> {
    call.sequences().neighbor(call.input(0).rows, call.output().rows, row, offset, stride)
}

impl<T: Real> GradientRule<T> for Im2col {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let Self { offsets, stride } = self;
        let input_columns = call.input(0).columns;
        table::each(out, call.columns(), |row, out| {
            for (offset, out) in offsets.iter().zip(out.chunks_mut(input_columns)) {
                match of_call(call, row, *offset, *stride) {
                    Some(other) => out.copy_from_slice(table::row(inputs[0], input_columns, other)),
                    None => out.fill(T::ZERO),
                }
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let Self { offsets, stride } = self;
        let (input_columns, columns) = (call.input(0).columns, call.columns());
        let Some(to) = &mut back.input_gradients[0] else { return };
        for row in 0..call.rows {
            let gradient = table::row(back.gradient, columns, row);
            for (offset, from) in offsets.iter().zip(gradient.chunks(input_columns)) {
                if let Some(other) = of_call(call, row, *offset, *stride) {
                    let to = &mut to[other * input_columns..(other + 1) * input_columns];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
                }
            }
        }
    }
}
