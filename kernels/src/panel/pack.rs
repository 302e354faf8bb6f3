//! Packs source blocks into panels.

use super::layout::{LINE, MACRO};
use super::{PanelLayout, PanelType, ROWS};
use crate::quant::bit_fields::BlockFields;
use crate::quant::row::{self, RowType};
use crate::quant::{BlockForm, BlockType};

/// Writes one panel of type [`PanelType::for_block`]`(source)`, every byte of it.
///
/// `rows` are up to 16 rows of `k` weights as raw source blocks; missing rows become padding. Returns
/// `false`, with nothing written, if there are more than 16 rows or a length does not match `k`.
pub fn pack(source: BlockType, rows: &[&[u8]], k: usize, out: &mut [u8]) -> bool {
    let panel = PanelType::for_block(source);
    let Some(row_bytes) = source.row_bytes(k) else { return false };
    if rows.len() > ROWS
        || rows.iter().any(|row| row.len() != row_bytes)
        || panel.panel_bytes(k) != Some(out.len())
    {
        return false;
    }
    out.fill(0);
    match source.codec().form() {
        BlockForm::Float(_) => rows.iter().enumerate().for_each(|(lane, row)| put_words(row, lane, out)),
        BlockForm::Integer(split) => put_blocks(source, split, rows, panel.layout(), out),
    }
    true
}

/// Writes one panel of type `source.panel()`, every byte of it, from up to 16 encoded rows of `k` columns.
/// Returns `false`, with nothing written, under the same conditions as [`pack`].
pub fn pack_rows(source: RowType, rows: &[&[u8]], k: usize, out: &mut [u8]) -> bool {
    let row_bytes = source.row_bytes(k);
    if rows.len() > ROWS
        || rows.iter().any(|row| Some(row.len()) != row_bytes)
        || source.panel().panel_bytes(k) != Some(out.len())
    {
        return false;
    }
    out.fill(0);
    let layout = source.panel().layout();
    let mut parts = BlockFields::ZERO;
    for (lane, row) in rows.iter().enumerate() {
        let (blocks, scale) = row::blocks(row);
        for ((codes, factors), block) in blocks.zip(out.chunks_exact_mut(layout.block_bytes())) {
            parts.codes[..MACRO].copy_from_slice(codes);
            parts.scales[..4].copy_from_slice(&factors);
            layout.put(&parts, 0, lane, block);
        }
        layout.rows.put(scale, lane, out);
    }
    true
}

/// Packs 4-byte and 2-byte floats alike: word w of the row is written to line w.
fn put_words(row: &[u8], lane: usize, out: &mut [u8]) {
    for (word, line) in row.chunks(4).zip(out.chunks_exact_mut(LINE)) {
        line[4 * lane..][..word.len()].copy_from_slice(word);
    }
}

fn put_blocks(
    source: BlockType,
    split: fn(&[u8], usize, &mut BlockFields),
    rows: &[&[u8]],
    layout: &PanelLayout,
    out: &mut [u8],
) {
    let codec = source.codec();
    // A unit is the larger of a source block and a panel block, a whole number of both.
    let sources = (layout.columns / codec.elements).max(1);
    let blocks = (codec.elements / layout.columns).max(1);
    let macros = layout.columns / MACRO;
    let block_bytes = layout.block_bytes();
    let mut parts = BlockFields::ZERO;
    for (u, unit) in out.chunks_mut(blocks * block_bytes).enumerate() {
        let start = u * sources * codec.bytes;
        for (lane, row) in rows.iter().enumerate() {
            let bytes = &row[start..row.len().min(start + sources * codec.bytes)];
            if bytes.len() < sources * codec.bytes {
                parts = BlockFields::ZERO;
            }
            for (slot, block) in bytes.chunks_exact(codec.bytes).enumerate() {
                split(block, slot, &mut parts);
            }
            for (b, block) in unit.chunks_exact_mut(block_bytes).enumerate() {
                layout.put(&parts, b * macros, lane, block);
            }
        }
    }
}
