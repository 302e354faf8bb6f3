//! Rows of packed matrices, as f32 values and as blocks.

use siskin_format::file::Tensor;
use siskin_kernels::panel::{self, ROWS};
use siskin_kernels::quant::BlockType;

/// Returns the panel that holds a row.
fn panel(tensor: &Tensor, row: usize) -> Option<&[u8]> {
    let bytes = tensor.panel.panel_bytes(tensor.columns)?;
    let start = (row / ROWS).checked_mul(bytes)?;
    tensor.data.get(start..start.checked_add(bytes)?)
}

/// Writes the values of row `row`. Returns false if the row is out of range.
pub(crate) fn values(tensor: &Tensor, row: usize, out: &mut [f32]) -> bool {
    panel(tensor, row)
        .is_some_and(|panel| panel::row_values(tensor.panel, panel, row % ROWS, tensor.columns, out))
}

/// Writes row `row` as the exact blocks that its panels hold. Returns false if the panels hold what such blocks cannot
/// or the row is out of range.
pub(crate) fn exact(tensor: &Tensor, row: usize, block: BlockType, out: &mut [u8]) -> bool {
    block.codec().panel == tensor.panel
        && panel(tensor, row)
            .is_some_and(|panel| panel::unpack(block, panel, row % ROWS, tensor.columns, out))
}

/// Writes row `row` as blocks: exact if possible, otherwise encoded from its values.
pub(crate) fn blocks(tensor: &Tensor, row: usize, block: BlockType, out: &mut [u8]) -> bool {
    if exact(tensor, row, block, out) {
        return true;
    }
    let mut numbers = vec![0.0; tensor.columns];
    values(tensor, row, &mut numbers) && block.quantize_row(&numbers, None, out)
}
