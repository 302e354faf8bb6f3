//! Sums of values, and per-column affine transforms.

use siskin_graph::op::{Add, Affine};

use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::real::Real;

impl<T: Real> GradientRule<T> for Add {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let columns = call.columns();
        table::each(out, columns, |row, out| {
            let (a, b) = (table::row(inputs[0], columns, row), table::row(inputs[1], columns, row));
            out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = *a + *b);
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let columns = call.columns();
        for to in back.input_gradients.iter_mut().flatten() {
            table::each(to, columns, |row, to| {
                let from = table::row(back.gradient, columns, row);
                to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            });
        }
    }
}

impl<T: Real> GradientRule<T> for Affine {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { weight, bias } = self;
        let (weight, bias, columns) = (call.weight(weight), call.weight(bias), call.columns());
        table::each(out, columns, |row, out| {
            let x = table::row(inputs[0], columns, row);
            let factors = weight.iter().zip(bias);
            out.iter_mut().zip(x).zip(factors).for_each(|((out, x), (w, b))| *out = *x * *w + *b);
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { weight, bias } = self;
        let columns = call.columns();
        let gradient = |row| table::row(back.gradient, columns, row);
        if let Some(to) = &mut back.input_gradients[0] {
            let factors = call.weight(weight);
            table::each(to, columns, |row, to| {
                to.iter_mut().zip(gradient(row)).zip(factors).for_each(|((to, g), w)| *to += *g * *w);
            });
        }
        if let Some(sums) = back.weight_gradients.of(weight) {
            table::sum_rows(call.rows, sums, |row, sums| {
                let x = table::row(back.inputs[0], columns, row);
                sums.iter_mut().zip(gradient(row)).zip(x).for_each(|((sum, g), x)| *sum += *g * *x);
            });
        }
        if let Some(sums) = back.weight_gradients.of(bias) {
            table::sum_rows(call.rows, sums, |row, sums| {
                sums.iter_mut().zip(gradient(row)).for_each(|(sum, g)| *sum += *g);
            });
        }
    }
}
