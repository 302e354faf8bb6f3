//! Slicing columns, gathering rows, and repeating columns.

use siskin_graph::op::{RepeatColumns, SelectOutputs, SliceColumns};

use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::real::Real;

impl<T: Real> GradientRule<T> for SliceColumns {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { start, .. } = self;
        let (wide, columns) = (call.input(0).columns, call.columns());
        table::each(out, columns, |row, out| {
            out.copy_from_slice(&table::row(inputs[0], wide, row)[start..start + columns]);
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { start, .. } = self;
        let (wide, columns) = (call.input(0).columns, call.columns());
        if let Some(to) = &mut back.input_gradients[0] {
            table::each(to, wide, |row, to| {
                let from = table::row(back.gradient, columns, row);
                to[start..start + columns].iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            });
        }
    }
}

impl<T: Real> GradientRule<T> for RepeatColumns {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { times } = self;
        let input_columns = call.input(0).columns;
        table::each(out, call.columns(), |row, out| {
            let x = table::row(inputs[0], input_columns, row);
            out.chunks_mut(times).zip(x).for_each(|(out, x)| out.fill(*x));
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { times } = self;
        let columns = call.columns();
        if let Some(to) = &mut back.input_gradients[0] {
            table::each(to, call.input(0).columns, |row, to| {
                let from = table::row(back.gradient, columns, row);
                to.iter_mut()
                    .zip(from.chunks(times))
                    .for_each(|(to, from)| *to += from.iter().copied().sum());
            });
        }
    }
}

impl<T: Real> GradientRule<T> for SelectOutputs {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let (wanted, columns) = (&call.sequences().output_rows, call.columns());
        table::each(out, columns, |row, out| {
            out.copy_from_slice(table::row(inputs[0], columns, wanted[row]));
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let columns = call.columns();
        if let Some(to) = &mut back.input_gradients[0] {
            for (row, &wanted) in call.sequences().output_rows.iter().enumerate() {
                let from = table::row(back.gradient, columns, row);
                let to = &mut to[wanted * columns..(wanted + 1) * columns];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            }
        }
    }
}
