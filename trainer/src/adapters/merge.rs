//! Merging adapters into the matrices that they adapt.

use super::{AdapterOptions, DoraVectors, TrainedAdapter};
use crate::gemm::{MatrixOutput, MatrixView, multiply_parallel};
use crate::parameters::{ForwardWeights, Parameters};
use crate::real::Real;

/// Returns some rows of a matrix plus the product of its adapter.
pub(super) fn merged_rows<T: Real>(
    parameters: &Parameters<T>,
    adapter: &TrainedAdapter,
    options: &AdapterOptions,
    rows: std::ops::Range<usize>,
) -> Vec<T> {
    let (first, second) = (&parameters.list[adapter.a], &parameters.list[adapter.b]);
    let mut sum = parameters.list[adapter.base].part(rows.clone()).into_owned();
    let (rank, columns) = (first.rows, first.columns);
    let a = MatrixView::new(&first.numbers, rank, columns, columns);
    let b = MatrixView::new(&second.numbers[rows.start * rank..], rows.len(), rank, rank);
    multiply_parallel(T::of(options.factor()), b, a, true, MatrixOutput::new(&mut sum, columns));
    sum
}

/// Returns the first `count` parameters with adapters merged into their matrices. Other tensors are bit-identical.
pub fn merge(
    parameters: &Parameters<f32>,
    count: usize,
    adapters: &[TrainedAdapter],
    options: &AdapterOptions,
) -> Parameters<f32> {
    let mut merged = Parameters { list: parameters.list[..count].to_vec() };
    for adapter in adapters {
        let rows = parameters.list[adapter.base].rows;
        let mut sum = merged_rows(parameters, adapter, options, 0..rows);
        if let Some(DoraVectors { magnitude: wanted, inverse_norm: inverse, .. }) = adapter.dora {
            let factors = parameters.list[wanted].numbers.iter().zip(&parameters.list[inverse].numbers);
            let columns = parameters.list[adapter.base].columns.max(1);
            for (row, (wanted, inverse)) in sum.chunks_mut(columns).zip(factors) {
                row.iter_mut().for_each(|x| *x = *x * inverse * wanted);
            }
        }
        let matrix = &mut merged.list[adapter.base];
        (matrix.numbers, matrix.forward) = (sum, ForwardWeights::Numbers);
    }
    merged
}
