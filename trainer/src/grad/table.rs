//! Parallel loops over the rows of a matrix.

use rayon::prelude::*;

use crate::real::Real;

/// Below this many elements, one thread is enough.
const PARALLEL_MIN: usize = 1 << 14;
/// Rows that one task sums: fixed, so that results do not depend on the number of threads.
const RUN: usize = 64;

/// Calls `work` for each row of `out`.
pub(super) fn each<T: Real>(out: &mut [T], columns: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if columns == 0 {
        return;
    }
    if out.len() < PARALLEL_MIN {
        out.chunks_mut(columns).enumerate().for_each(|(row, out)| work(row, out));
    } else {
        let run = (PARALLEL_MIN / 4).div_ceil(columns);
        out.par_chunks_mut(run * columns).enumerate().for_each(|(index, out)| {
            out.chunks_mut(columns).enumerate().for_each(|(row, out)| work(index * run + row, out));
        });
    }
}

/// Returns row `row` of a table.
pub(super) fn row<T>(table: &[T], columns: usize, row: usize) -> &[T] {
    &table[row * columns..(row + 1) * columns]
}

/// Adds what `add` gives for each of `rows` rows to `sums`, in an order that does not depend on the number of
/// threads.
pub(super) fn sum_rows<T: Real>(rows: usize, sums: &mut [T], add: impl Fn(usize, &mut [T]) + Sync) {
    let width = sums.len();
    let parts: Vec<Vec<T>> = (0..rows.div_ceil(RUN))
        .into_par_iter()
        .map(|part| {
            let mut sums = vec![T::ZERO; width];
            (part * RUN..rows.min((part + 1) * RUN)).for_each(|row| add(row, &mut sums));
            sums
        })
        .collect();
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
}
