//! TQ2_0: 256 2-bit codes, f16 d; weight = d · (code − 1).

use super::bit_fields::{BlockFields, half, join_pairs, put_pairs, word};
use super::search::{IntegerLevels, Reach, ImportanceWeights, put_codes, symmetric_half};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "TQ2_0",
    gguf_id: 35,
    elements: 256,
    bytes: 66,
    panel: PanelType::TERNARY,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    put_pairs(&block[..64], &mut parts.codes);
    parts.d[0] = word(block, 64);
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    (parts.codes, parts.d[0]) = ternary(values, weights);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    join_pairs(&parts.codes, &mut block[..64]);
    block[64..].copy_from_slice(&parts.d[0].to_le_bytes());
}

const REACH: Reach = Reach { from: 0.9, to: 3.2, steps: 46 };

/// Returns the codes −1, 0 and 1, plus one, and the f16 scale of a block.
pub(super) fn ternary(values: &[f32], weights: Option<&[f32]>) -> ([u8; 256], u16) {
    let mut codes = [0; 256];
    let weights = ImportanceWeights::new(weights);
    let d = symmetric_half(values, weights.from(0), IntegerLevels(-1.0, 1.0), REACH) & 0x7fff;
    put_codes(values, IntegerLevels(-1.0, 1.0), half(d), 0.0, &mut codes);
    (codes, d)
}
