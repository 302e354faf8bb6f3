//! The scalar reference of matmul: output by output, directly from the contract.

use super::{Input, MatmulOperands};
use crate::float;
use crate::ops::quantize::{QuantizedRowLayout, QuantizedRowReader};
use crate::panel::{self, ROWS};

/// Returns output `output` of row `row`, with its bias and without a residual. `scratch` holds K floats and
/// is used for float types only.
pub fn reference(product: &MatmulOperands<'_>, row: usize, output: usize, scratch: &mut [f32]) -> f32 {
    let bytes = product.panel.panel_bytes(product.columns).unwrap_or(0);
    let panel = &product.weights[output / ROWS * bytes..][..bytes];
    if let Input::Rotated(words) = product.input {
        let layout = QuantizedRowLayout::new(product.columns);
        let row = QuantizedRowReader::new(layout, &words[row * layout.words()..][..layout.words()]);
        let sum = whole_row(product, panel, output % ROWS, row);
        return product.bias.get(output).map_or(sum, |bias| sum + bias);
    }
    let sum = match product.input {
        Input::Quantized(words) | Input::Rotated(words) => {
            let layout = QuantizedRowLayout::new(product.columns);
            let row = QuantizedRowReader::new(layout, &words[row * layout.words()..][..layout.words()]);
            integers(product, panel, output % ROWS, row)
        }
        Input::Float { rows, stride } => {
            let row = &rows[row * stride..][..product.columns];
            panel::row_values(product.panel, panel, output % ROWS, product.columns, scratch);
            row.iter().zip(scratch.iter()).fold(0.0, |sum, (x, w)| float::fma(*w, *x, sum))
        }
    };
    product.bias.get(output).map_or(sum, |bias| sum + bias)
}

fn integers(product: &MatmulOperands<'_>, panel: &[u8], lane: usize, row: QuantizedRowReader<'_>) -> f32 {
    let size = product.panel.sub_block();
    let mut sum = 0.0;
    for index in 0..product.panel.columns_padded(product.columns) / size {
        let block = panel::sub_block(product.panel, panel, lane, index);
        let value = |i: usize| row.value(index * size + i);
        let dot: i32 = (0..size).map(|i| i32::from(block.values[i]) * value(i)).sum();
        let scale = row.scale(index * size);
        sum = float::fma(dot as f32, block.scale * scale, sum);
        if product.panel.has_min() {
            let total: i32 = (0..size).map(value).sum();
            sum = float::fma(block.min, scale * total as f32, sum);
        }
    }
    sum
}

fn whole_row(product: &MatmulOperands<'_>, panel: &[u8], lane: usize, row: QuantizedRowReader<'_>) -> f32 {
    let size = product.panel.sub_block();
    let (mut sum, mut scale) = (0, 0.0);
    for index in 0..product.panel.columns_padded(product.columns) / size {
        let block = panel::sub_block(product.panel, panel, lane, index);
        let products = (0..size).map(|i| i32::from(block.values[i]) * row.value(index * size + i));
        sum += products.sum::<i32>();
        scale = block.scale;
    }
    sum as f32 * (scale * row.scale(0))
}
