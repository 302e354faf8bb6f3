//! Shows an observer the inputs of matmuls.

use std::sync::Mutex;

use siskin_kernels::hadamard;
use siskin_kernels::ops::matmul::Input;
use siskin_kernels::ops::quantize::{QuantizedRowLayout, QuantizedRowReader};

use crate::observer::Observer;
use crate::plan::MatmulPart;
use siskin_graph::Graph;

/// An observer, with the graph that has the names of the matrices.
#[derive(Clone, Copy)]
pub(super) struct Observation<'a> {
    pub observer: &'a Mutex<dyn Observer>,
    pub graph: &'a Graph,
}

impl Observation<'_> {
    /// Passes `count` rows of `input` to the observer.
    pub(super) fn show(self, parts: &[MatmulPart], columns: usize, count: usize, input: Input<'_>) {
        let mut names: Vec<&str> =
            parts.iter().map(|part| self.graph.weights[part.weight].name.as_str()).collect();
        // The gate and up halves of one matrix are adjacent parts with the same name.
        names.dedup();
        let mut observer = self.observer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !names.iter().any(|name| observer.is_observed(name)) {
            return;
        }
        let rows: Vec<f32> = (0..count).flat_map(|row| row_of(input, row, columns)).collect();
        observer.observe(&names, columns, &rows);
    }
}

/// Returns the values of a row, dequantized.
fn row_of(input: Input<'_>, row: usize, columns: usize) -> Vec<f32> {
    let layout = QuantizedRowLayout::new(columns);
    let numbers = |words: &[i32], count: usize| -> Vec<f32> {
        let row = QuantizedRowReader::new(layout, &words[row * layout.words()..][..layout.words()]);
        (0..count).map(|column| row.value(column) as f32 * row.scale(column)).collect()
    };
    match input {
        Input::Float { rows, stride } => rows[row * stride..][..columns].to_vec(),
        Input::Quantized(words) => numbers(words, columns),
        Input::Rotated(words) => {
            let mut numbers = numbers(words, columns.next_multiple_of(hadamard::BLOCK));
            hadamard::rotate(&mut numbers);
            numbers.truncate(columns);
            numbers
        }
    }
}
