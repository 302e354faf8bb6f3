//! Iterates over the blocks of a row of a row type, for kernels that rotate them back.

use super::layout::PanelLayout;
use super::{PanelType, ROWS};
use crate::hadamard;
use crate::quant::bit_fields::BlockFields;
use crate::simd::LANES;

/// The consecutive blocks of a row: rotated, and not yet multiplied by the scale.
pub(crate) struct PanelBlocks<'a> {
    layout: &'static PanelLayout,
    rest: &'a [u8],
    lane: usize,
    scale: f32,
    parts: BlockFields,
}

impl<'a> PanelBlocks<'a> {
    /// Creates the iterator for `columns` columns; `None` if `ty` is not a row type, the size of the panel
    /// does not match, or the lane is above 15.
    pub(crate) fn new(ty: PanelType, panel: &'a [u8], lane: usize, columns: usize) -> Option<Self> {
        let fits = ty.is_row() && lane < ROWS && ty.panel_bytes(columns) == Some(panel.len());
        let layout = ty.layout();
        fits.then(|| {
            let scale = layout.rows.take(lane, panel) * hadamard::NORMAL;
            Self { layout, rest: panel, lane, scale, parts: BlockFields::ZERO }
        })
    }

    /// Returns the factor from transformed values of a block to weights.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// Writes the vectors of the next block.
    pub(crate) fn next(&mut self, out: &mut [[f32; LANES]; hadamard::BLOCK / LANES]) {
        if let Some((block, rest)) = self.rest.split_at_checked(self.layout.block_bytes()) {
            self.rest = rest;
            self.layout.take(block, 0, self.lane, &mut self.parts);
            let codes = &self.parts.codes[..hadamard::BLOCK];
            self.layout.meaning.evaluate(&self.parts, 0, codes, out.as_flattened_mut());
        }
    }
}
