//! Linear layers.

use siskin_graph::op::Linear;

use super::{GradientRule, RuleBackward, RuleCall, table};
use crate::gemm::{MatrixOutput, MatrixView, multiply_parallel};
use crate::real::Real;

impl<T: Real> GradientRule<T> for Linear {
    fn takes_packed(&self) -> bool {
        true
    }

    fn flops(&self, call: &RuleCall<'_, T>) -> f64 {
        2.0 * call.rows as f64 * call.columns() as f64 * call.input(0).columns as f64
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let Self { parts } = self;
        let (depth, columns) = (call.input(0).columns, call.columns());
        let x = MatrixView::new(inputs[0], call.rows, depth, depth);
        let mut start = 0;
        for &(weight, bias) in parts {
            let matrix = call.matrix(weight);
            for part in matrix.parts().filter(|_| call.rows > 0) {
                let numbers = matrix.part(part.clone());
                let w = MatrixView::new(&numbers, part.len(), depth, depth);
                let to = MatrixOutput::new(&mut out[start + part.start..], columns);
                multiply_parallel(T::ONE, x, w.transposed(), false, to);
            }
            if let Some(bias) = bias {
                let bias = call.weight(bias);
                table::each(out, columns, |_, out| {
                    out[start..].iter_mut().zip(bias).for_each(|(out, bias)| *out += *bias);
                });
            }
            start += matrix.rows;
        }
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let Self { parts } = self;
        if call.rows == 0 {
            return;
        }
        let (depth, columns) = (call.input(0).columns, call.columns());
        let x = MatrixView::new(back.inputs[0], call.rows, depth, depth);
        let mut start = 0;
        for &(weight, bias) in parts {
            let width = call.program.graph.weights[weight].rows;
            let gradient = MatrixView::new(&back.gradient[start..], call.rows, width, columns);
            if let Some(to) = &mut back.input_gradients[0] {
                let matrix = call.matrix(weight);
                for part in matrix.parts() {
                    let numbers = matrix.part(part.clone());
                    let w = MatrixView::new(&numbers, part.len(), depth, depth);
                    let output_gradient = &back.gradient[start + part.start..];
                    let output_gradient = MatrixView::new(output_gradient, call.rows, part.len(), columns);
                    multiply_parallel(T::ONE, output_gradient, w, true, MatrixOutput::new(to, depth));
                }
            }
            if let Some(to) = back.weight_gradients.of(weight) {
                multiply_parallel(T::ONE, gradient.transposed(), x, true, MatrixOutput::new(to, depth));
            }
            if let Some(sums) = bias.and_then(|bias| back.weight_gradients.of(bias)) {
                table::sum_rows(call.rows, sums, |row, sums| {
                    let from = &table::row(back.gradient, columns, row)[start..];
                    sums.iter_mut().zip(from).for_each(|(sum, from)| *sum += *from);
                });
            }
            start += width;
        }
    }
}
