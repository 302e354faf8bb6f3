//! GEMM over views of slices.

use rayon::prelude::*;
use siskin_device::GemmShape;

use crate::real::Real;

/// A matrix view of a slice.
#[derive(Clone, Copy, Debug)]
pub struct MatrixView<'a, T> {
    numbers: &'a [T],
    rows: usize,
    columns: usize,
    /// Elements from a row to the next, and from a column to the next.
    strides: [usize; 2],
}

impl<'a, T> MatrixView<'a, T> {
    /// Creates a view of `rows` × `columns` elements with a row stride of `stride`.
    ///
    /// # Panics
    /// If the slice is too short.
    pub fn new(numbers: &'a [T], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(fits(numbers.len(), rows, columns, [stride, 1]), "matrix out of bounds");
        Self { numbers, rows, columns, strides: [stride, 1] }
    }

    /// Returns the transpose.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, strides: [self.strides[1], self.strides[0]], ..self }
    }

    /// Returns some of its rows.
    fn part(self, first: usize, rows: usize) -> Self {
        Self { numbers: &self.numbers[first * self.strides[0]..], rows, ..self }
    }
}

fn fits(length: usize, rows: usize, columns: usize, strides: [usize; 2]) -> bool {
    rows == 0 || columns == 0 || (rows - 1) * strides[0] + (columns - 1) * strides[1] < length
}

/// An output matrix with a row stride of `stride`.
#[derive(Debug)]
pub struct MatrixOutput<'a, T> {
    numbers: &'a mut [T],
    stride: usize,
}

impl<'a, T> MatrixOutput<'a, T> {
    /// Creates an output matrix whose rows begin `stride` elements apart.
    pub fn new(numbers: &'a mut [T], stride: usize) -> Self {
        Self { numbers, stride }
    }
}

/// Computes `out = factor · a · b`, or accumulates it into `out`, on this thread alone.
///
/// # Panics
/// If the shapes do not match.
pub fn multiply<T: Real>(
    factor: T,
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    add: bool,
    out: MatrixOutput<'_, T>,
) {
    let (m, k, n) = (a.rows, a.columns, b.columns);
    assert!(b.rows == k && (m < 2 || out.stride >= n), "matrix shapes do not match");
    assert!(fits(out.numbers.len(), m, n, [out.stride, 1]), "output out of bounds");
    assert!(fits(a.numbers.len(), m, k, a.strides) && fits(b.numbers.len(), k, n, b.strides));
    let signed = |strides: [usize; 2]| strides.map(|stride| stride as isize);
    let beta = if add { T::ONE } else { T::ZERO };
    // SAFETY: all offsets were checked to lie in the slices; rows of the output do not overlap.
    unsafe {
        T::gemm_raw(
            GemmShape { m, n, k },
            factor,
            (a.numbers.as_ptr(), signed(a.strides)),
            (b.numbers.as_ptr(), signed(b.strides)),
            beta,
            (out.numbers.as_mut_ptr(), signed([out.stride, 1])),
        );
    }
}

/// Rows of the output that one task computes: fixed, so that results do not depend on the number of threads.
const ROWS: usize = 192;

/// Like [`multiply`], on all threads.
///
/// # Panics
/// If the shapes do not match.
pub fn multiply_parallel<T: Real>(
    factor: T,
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    add: bool,
    out: MatrixOutput<'_, T>,
) {
    let (rows, stride) = (a.rows, out.stride);
    if rows <= ROWS {
        return multiply(factor, a, b, add, out);
    }
    assert!(fits(out.numbers.len(), rows, b.columns, [stride, 1]), "output out of bounds");
    out.numbers.par_chunks_mut(ROWS * stride).enumerate().for_each(|(index, numbers)| {
        let first = index * ROWS;
        let count = ROWS.min(rows.saturating_sub(first));
        if count > 0 {
            multiply(factor, a.part(first, count), b, add, MatrixOutput::new(numbers, stride));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_match_naive_loops() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (400, 33, 20), (193, 64, 65)] {
            let number = |i: usize| ((i * 37 % 101) as f64 - 50.0) / 50.0;
            let a: Vec<f64> = (0..m * k).map(number).collect();
            let b: Vec<f64> = (0..n * k).map(|i| number(i + 3)).collect();
            let mut out = vec![1.0; m * (n + 2)];
            let b = MatrixView::new(&b, n, k, k);
            multiply_parallel(
                2.0,
                MatrixView::new(&a, m, k, k),
                b.transposed(),
                true,
                MatrixOutput::new(&mut out, n + 2),
            );
            for row in 0..m {
                for column in 0..n {
                    let sum: f64 = (0..k).map(|i| a[row * k + i] * b.numbers[column * k + i]).sum();
                    assert!((out[row * (n + 2) + column] - 1.0 - 2.0 * sum).abs() < 1e-9);
                }
                let between = &out[row * (n + 2) + n..(row + 1) * (n + 2)];
                assert_eq!(between, [1.0, 1.0], "what stands between rows stays");
            }
        }
    }
}
