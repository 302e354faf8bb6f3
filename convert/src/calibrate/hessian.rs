//! The Hessian XᵀX of activations.

use rayon::prelude::*;
use siskin_kernels::Cpu;
use siskin_kernels::hadamard;
use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::matmul::{Input, MatmulOperands, Output};
use siskin_kernels::panel::{self, PanelType, ROWS};
use siskin_kernels::quant::BlockType;
use std::ops::Range;

/// Maximum number of columns per block of a Hessian: memory grows with the square, time with the cube.
const MAX_WIDTH: usize = 1024;

/// The Hessian of the activations that enter a matrix.
pub(super) struct Hessian {
    columns: usize,
    rows: usize,
    /// Sum of squares of each column.
    squares: Vec<f64>,
    /// Ranges of rotated columns, each with its block of XᵀX.
    pub(super) blocks: Vec<(Range<usize>, Vec<f32>)>,
}

/// Splits the rotated columns into ranges of at most [`MAX_WIDTH`] columns, each of whole Hadamard rotations.
fn runs(columns: usize) -> impl Iterator<Item = Range<usize>> {
    let rotations = columns.div_ceil(hadamard::BLOCK);
    let count = (rotations * hadamard::BLOCK).div_ceil(MAX_WIDTH);
    let at = move |index: usize| index * rotations / count * hadamard::BLOCK;
    (0..count).map(move |index| at(index)..at(index + 1))
}

impl Hessian {
    pub(super) fn new(columns: usize) -> Self {
        let blocks = runs(columns).map(|run| (run.clone(), vec![0.0; run.len() * run.len()]));
        Self { columns, rows: 0, squares: vec![0.0; columns], blocks: blocks.collect() }
    }

    /// Adds rows, concatenated.
    pub(super) fn add(&mut self, rows: &[f32]) {
        if rows.is_empty() {
            return;
        }
        let padded = self.columns.next_multiple_of(hadamard::BLOCK);
        let mut rotated = Vec::with_capacity(rows.len() / self.columns.max(1) * padded);
        for row in rows.chunks_exact(self.columns) {
            for (square, x) in self.squares.iter_mut().zip(row) {
                *square += f64::from(x * x);
            }
            let start = rotated.len();
            rotated.extend_from_slice(row);
            rotated.resize(start + padded, 0.0);
            hadamard::rotate(&mut rotated[start..]);
            self.rows += 1;
        }
        for (run, sums) in &mut self.blocks {
            add_products(&rotated, padded, run.clone(), sums);
        }
    }

    /// Returns the mean square of each column.
    pub(super) fn squares(&self) -> Vec<f32> {
        self.squares.iter().map(|square| (square / self.rows.max(1) as f64) as f32).collect()
    }
}

/// Adds XᵀX of the columns `run` over all rows to `sums`.
fn add_products(rows: &[f32], stride: usize, run: Range<usize>, sums: &mut [f32]) {
    let (count, size) = (rows.len() / stride, run.len());
    // Transposes, so that columns become rows.
    let mut turned = vec![0.0; size * count];
    for (at, row) in rows.chunks_exact(stride).enumerate() {
        for (column, x) in row[run.clone()].iter().enumerate() {
            turned[column * count + at] = *x;
        }
    }
    let bytes: Vec<u8> = turned.iter().flat_map(|x| x.to_le_bytes()).collect();
    let Some(panel_bytes) = PanelType::F32.panel_bytes(count) else { return };
    let mut weights = vec![0; panel_bytes * size / ROWS];
    weights.par_chunks_exact_mut(panel_bytes).zip(bytes.par_chunks_exact(4 * count * ROWS)).for_each(
        |(panel, rows)| {
            let rows: Vec<&[u8]> = rows.chunks_exact(4 * count).collect();
            assert!(panel::pack(BlockType::F32, &rows, count, panel), "rows of whole numbers");
        },
    );
    let product = MatmulOperands {
        panel: PanelType::F32,
        weights: &weights,
        outputs: size,
        columns: count,
        bias: &[],
        input: Input::Float { rows: &turned, stride: count },
    };
    let kernel = Kernels::for_cpu(Cpu::detect()).matmul();
    sums.par_chunks_mut(size * hadamard::BLOCK).enumerate().for_each(|(part, sums)| {
        let input = Input::Float { rows: &turned[part * hadamard::BLOCK * count..], stride: count };
        // SAFETY: the table is these sums, which are borrowed for this call alone and are their own residual.
        let out = unsafe {
            let start = sums.as_mut_ptr();
            Output::new(start, hadamard::BLOCK, size, size).plus(start, size)
        };
        kernel(&MatmulOperands { input, ..product }, 0..hadamard::BLOCK, 0..size / ROWS, out);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_definition() {
        let (columns, count) = (100, 7);
        let rows: Vec<f32> = (0..columns * count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 10.0).collect();
        let mut hessian = Hessian::new(columns);
        hessian.add(&rows[..3 * columns]);
        hessian.add(&rows[3 * columns..]);
        let mut rotated: Vec<Vec<f32>> = rows.chunks(columns).map(<[f32]>::to_vec).collect();
        for row in &mut rotated {
            row.resize(128, 0.0);
            hadamard::rotate(row);
        }
        let (run, sums) = &hessian.blocks[0];
        assert_eq!(*run, 0..128);
        for i in 0..128 {
            for j in 0..128 {
                let sum: f32 = rotated.iter().map(|row| row[i] * row[j]).sum();
                assert!(
                    (sums[i * 128 + j] - sum).abs() < 0.01,
                    "{i} {j}: {} is not {sum}",
                    sums[i * 128 + j]
                );
            }
        }
        hessian.add(&[]);
        let mean: f32 = rows.iter().step_by(columns).map(|x| x * x).sum::<f32>() / count as f32;
        assert!((hessian.squares()[0] - mean).abs() < 1e-4 * mean);
    }

    #[test]
    fn runs_are_even_and_whole() {
        let ends = |columns| runs(columns).map(|run| (run.start, run.end)).collect::<Vec<_>>();
        assert_eq!(ends(576), [(0, 576)]);
        assert_eq!(ends(1536), [(0, 768), (768, 1536)]);
        assert_eq!(ends(1), [(0, 64)]);
    }
}
