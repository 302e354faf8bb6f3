//! Reads panels back to f32: scalar code that kernels are checked against.
//!
//! In panels of row types, a sub-block is a part of the rotated row, and its values are the integers times
//! their factor.

use super::layout::{LINE, MACRO, line_word};
use super::{PanelType, ROWS};
use crate::hadamard;
use crate::quant::bit_fields::BlockFields;
use half::f16;

/// Consecutive columns of one row that share a scale: each weight is `scale * value + min`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubBlock {
    /// The integers, after offset or codebook; zero from `count` on.
    pub values: [i16; 32],
    /// Number of columns: 32 or 16, or 0 if the sub-block is out of range.
    pub count: usize,
    /// The scale.
    pub scale: f32,
    /// The minimum; 0 for types without one.
    pub min: f32,
}

/// Returns sub-block `index`, counted from the start of the row, of row `lane` of an integer panel.
///
/// The `count` is 0 for a float type, a lane above 15, and an index beyond the whole blocks of `panel`.
pub fn sub_block(ty: PanelType, panel: &[u8], lane: usize, index: usize) -> SubBlock {
    let mut result = SubBlock { values: [0; 32], count: 0, scale: 0.0, min: 0.0 };
    let (layout, meaning) = (ty.layout(), ty.layout().meaning);
    let of_block = layout.columns / meaning.sub_block;
    let block = panel.chunks_exact(layout.block_bytes()).nth(index / of_block);
    let (Some(block), true) = (block, lane < ROWS && !ty.is_float()) else { return result };
    let (s, of_macro) = (index % of_block, MACRO / meaning.sub_block);
    let mut parts = BlockFields::ZERO;
    layout.take(block, s / of_macro, lane, &mut parts);
    (result.scale, result.min) = meaning.rule.scale(&parts, s);
    let mut factor = 1;
    if meaning.rule.is_row() {
        factor = result.scale as i16;
        result.scale = layout.rows.take(lane, panel);
    }
    result.count = meaning.sub_block;
    let codes = &parts.codes[s % of_macro * meaning.sub_block..][..meaning.sub_block];
    for (value, &code) in result.values.iter_mut().zip(codes) {
        *value = meaning.values.integer(code) * factor;
    }
    result
}

/// Writes the first `k` weights of row `lane`. Returns `false`, with nothing written, if `out` does not hold
/// `k` floats, `panel` is not a panel of `k` columns or the lane is above 15.
pub fn row_values(ty: PanelType, panel: &[u8], lane: usize, k: usize, out: &mut [f32]) -> bool {
    if out.len() != k || lane >= ROWS || ty.panel_bytes(k) != Some(panel.len()) {
        return false;
    }
    match ty {
        PanelType::F32 => {
            for (line, out) in panel.chunks_exact(LINE).zip(out) {
                *out = f32::from_bits(line_word(line, lane));
            }
        }
        PanelType::F16 => halves(panel, lane, out, |bits| f16::from_bits(bits).to_f32()),
        PanelType::BF16 => halves(panel, lane, out, |bits| f32::from_bits(u32::from(bits) << 16)),
        _ if ty.is_row() => rotated(ty, panel, lane, out),
        _ => integers(ty, panel, lane, out),
    }
    true
}

fn halves(panel: &[u8], lane: usize, out: &mut [f32], number: impl Fn(u16) -> f32) {
    for (line, out) in panel.chunks_exact(LINE).zip(out.chunks_mut(2)) {
        let word = line_word(line, lane);
        for (i, out) in out.iter_mut().enumerate() {
            *out = number((word >> (16 * i)) as u16);
        }
    }
}

fn integers(ty: PanelType, panel: &[u8], lane: usize, out: &mut [f32]) {
    let (layout, meaning) = (ty.layout(), ty.layout().meaning);
    let of_macro = MACRO / meaning.sub_block;
    let mut parts = BlockFields::ZERO;
    for (block, out) in panel.chunks_exact(layout.block_bytes()).zip(out.chunks_mut(layout.columns)) {
        for (m, out) in out.chunks_mut(MACRO).enumerate() {
            layout.take(block, m, lane, &mut parts);
            meaning.evaluate(&parts, m * of_macro, &parts.codes[..MACRO], out);
        }
    }
}

/// Writes the weights of a row type, rotated back.
fn rotated(ty: PanelType, panel: &[u8], lane: usize, out: &mut [f32]) {
    let scale = ty.layout().rows.take(lane, panel) * hadamard::NORMAL;
    let mut numbers = [0.0; hadamard::BLOCK];
    for (block, out) in panel.chunks_exact(ty.block_bytes()).zip(out.chunks_mut(hadamard::BLOCK)) {
        integers(ty, block, lane, &mut numbers);
        hadamard::transform(&mut numbers);
        for (out, number) in out.iter_mut().zip(numbers) {
            *out = number * scale;
        }
    }
}
