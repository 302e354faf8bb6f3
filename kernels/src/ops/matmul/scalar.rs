//! Matmul without vector instructions: each sub-block is unpacked once and used by several rows.

use core::ops::Range;

use super::{Function, Input, MatmulOperands, Output};
use crate::CpuFeatures;
use crate::float;
use crate::ops::Kernel;
use crate::ops::quantize::{QuantizedRowLayout, QuantizedRowReader};
use crate::panel::{self, ROWS, SubBlock};

pub(super) const KERNEL: Kernel<Function> = Kernel::new("matmul-scalar", CpuFeatures::NONE, scalar);

/// Rows that share an unpacked sub-block.
const TILE: usize = 8;
/// Columns of a float row that are unpacked at a time.
const COLUMNS: usize = 64;

fn scalar(product: &MatmulOperands<'_>, rows: Range<usize>, panels: Range<usize>, out: Output<'_>) {
    product.check(&rows, &panels);
    let outputs = panels.start * ROWS..(panels.end * ROWS).min(product.outputs);
    for output in outputs {
        for first in rows.clone().step_by(TILE) {
            let rows = first..rows.end.min(first + TILE);
            let sums = match product.input {
                Input::Rotated(words) => whole_rows(product, words, rows.clone(), output),
                Input::Quantized(words) => integers(product, words, rows.clone(), output),
                Input::Float { rows: input, stride } => floats(product, input, stride, rows.clone(), output),
            };
            for (row, sum) in rows.zip(sums) {
                out.set(row, output, product.bias.get(output).map_or(sum, |bias| sum + bias));
            }
        }
    }
}

/// Returns the panel of an output.
fn panel_of<'a>(product: &MatmulOperands<'a>, output: usize) -> &'a [u8] {
    let bytes = product.panel.panel_bytes(product.columns).unwrap_or(0);
    &product.weights[output / ROWS * bytes..][..bytes]
}

fn integers(product: &MatmulOperands<'_>, words: &[i32], rows: Range<usize>, output: usize) -> [f32; TILE] {
    let panel = panel_of(product, output);
    let layout = QuantizedRowLayout::new(product.columns);
    let size = product.panel.sub_block();
    let mut sums = [0.0; TILE];
    for index in 0..product.panel.columns_padded(product.columns) / size {
        let block = panel::sub_block(product.panel, panel, output % ROWS, index);
        for (row, sum) in rows.clone().zip(&mut sums) {
            let row = QuantizedRowReader::new(layout, &words[row * layout.words()..][..layout.words()]);
            *sum = add_sub_block(product, &block, row, index * size, *sum);
        }
    }
    sums
}

/// Computes the outputs of row types.
fn whole_rows(product: &MatmulOperands<'_>, words: &[i32], rows: Range<usize>, output: usize) -> [f32; TILE] {
    let panel = panel_of(product, output);
    let layout = QuantizedRowLayout::new(product.columns);
    let row_of =
        |row: usize| QuantizedRowReader::new(layout, &words[row * layout.words()..][..layout.words()]);
    let size = product.panel.sub_block();
    let (mut sums, mut scale) = ([0; TILE], 0.0);
    for index in 0..product.panel.columns_padded(product.columns) / size {
        let block = panel::sub_block(product.panel, panel, output % ROWS, index);
        scale = block.scale;
        for (row, sum) in rows.clone().zip(&mut sums) {
            *sum += dot(&block.values[..size], row_of(row).words(index * size..(index + 1) * size));
        }
    }
    let mut results = [0.0; TILE];
    for ((row, sum), result) in rows.zip(sums).zip(&mut results) {
        *result = sum as f32 * (scale * row_of(row).scale(0));
    }
    results
}

fn add_sub_block(
    product: &MatmulOperands<'_>,
    block: &SubBlock,
    row: QuantizedRowReader<'_>,
    column: usize,
    sum: f32,
) -> f32 {
    let size = product.panel.sub_block();
    let words = row.words(column..column + size);
    let scale = row.scale(column);
    let sum = float::fma(dot(&block.values[..size], words) as f32, block.scale * scale, sum);
    if product.panel.has_min() { float::fma(block.min, scale * total(words) as f32, sum) } else { sum }
}

/// Returns the dot product of weights with the integers in some words.
fn dot(weights: &[i16], words: &[i32]) -> i32 {
    let mut dot = 0;
    for (weights, word) in weights.as_chunks::<4>().0.iter().zip(words) {
        for (weight, value) in weights.iter().zip(word.to_le_bytes()) {
            dot += i32::from(*weight) * i32::from(value as i8);
        }
    }
    dot
}

/// Returns the sum of the integers in some words.
fn total(words: &[i32]) -> i32 {
    words.iter().flat_map(|word| word.to_le_bytes()).map(|value| i32::from(value as i8)).sum()
}

fn floats(
    product: &MatmulOperands<'_>,
    input: &[f32],
    stride: usize,
    rows: Range<usize>,
    output: usize,
) -> [f32; TILE] {
    let panel = panel_of(product, output);
    let block_bytes = product.panel.block_bytes();
    let mut sums = [0.0; TILE];
    let mut weights = [0.0; COLUMNS];
    for (block, lines) in panel.chunks(block_bytes).enumerate() {
        let column = block * COLUMNS;
        let weights = &mut weights[..COLUMNS.min(product.columns - column)];
        panel::row_values(product.panel, lines, output % ROWS, weights.len(), weights);
        for (row, sum) in rows.clone().zip(&mut sums) {
            let x = &input[row * stride + column..][..weights.len()];
            *sum = weights.iter().zip(x).fold(*sum, |sum, (w, x)| float::fma(*w, *x, sum));
        }
    }
    sums
}
