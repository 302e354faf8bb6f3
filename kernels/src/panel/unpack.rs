//! Unpacks panels to source blocks, byte for byte.
//!
//! Block types may share a panel type. Blocks of `target` are split again and compared with the panel, so that a type
//! which cannot hold its codes and scales is rejected, and never gives other weights.

use super::layout::{LINE, MACRO};
use super::{PanelType, ROWS};
use crate::quant::bit_fields::BlockFields;
use crate::quant::{BlockForm, BlockType, Join, Split};

/// Writes the first `k` weights of row `lane` as blocks of `target`: the bytes that were passed to
/// [`pack`](super::pack).
///
/// Returns `false` if the panel does not hold every bit of such blocks (as for all IQ1, IQ2 and IQ3 types) or such
/// blocks cannot hold the row, if the length of `out` is not that of such a row, if `panel` is not a panel of
/// `k` columns, or if the lane is above 15. The contents of `out` are then unspecified.
pub fn unpack(target: BlockType, panel: &[u8], lane: usize, k: usize, out: &mut [u8]) -> bool {
    let ty = PanelType::for_block(target);
    if target.row_bytes(k) != Some(out.len()) || lane >= ROWS || ty.panel_bytes(k) != Some(panel.len()) {
        return false;
    }
    match (target.codec().form(), target.codec().join()) {
        (BlockForm::Float(_), _) => {
            for (line, word) in panel.chunks_exact(LINE).zip(out.chunks_mut(4)) {
                word.copy_from_slice(&line[4 * lane..][..word.len()]);
            }
        }
        (BlockForm::Integer(split), Some(join)) => return blocks(target, (split, join), panel, lane, out),
        (BlockForm::Integer(_), None) => return false,
    }
    true
}

fn blocks(
    target: BlockType,
    (split, join): (Split, Join),
    panel: &[u8],
    lane: usize,
    out: &mut [u8],
) -> bool {
    let (codec, layout) = (target.codec(), PanelType::for_block(target).layout());
    // No type that can be joined has blocks larger than those of its panel.
    let sources = (layout.columns / codec.elements).max(1);
    let (mut parts, mut whole) = (BlockFields::ZERO, BlockFields::ZERO);
    for (block, out) in panel.chunks_exact(layout.block_bytes()).zip(out.chunks_mut(sources * codec.bytes)) {
        for (m, codes) in whole.codes[..layout.columns].chunks_exact_mut(MACRO).enumerate() {
            layout.take(block, m, lane, &mut parts);
            codes.copy_from_slice(&parts.codes[..MACRO]);
        }
        (whole.d, whole.m, whole.scales, whole.mins) = (parts.d, parts.m, parts.scales, parts.mins);
        let mut again = BlockFields::ZERO;
        for (slot, block) in out.chunks_exact_mut(codec.bytes).enumerate() {
            join(&whole, slot, block);
            split(block, slot, &mut again);
        }
        let columns = out.len() / codec.bytes * codec.elements;
        if !again.is_same(&whole, columns) {
            return false;
        }
    }
    true
}
