//! Q4_1: f16 scale and minimum, 32 nibbles; weight = d · nibble + m.

use super::bit_fields::{BlockFields, half, join_nibbles, put_nibbles, word};
use super::search::{IntegerLevels, ImportanceWeights, affine_half, put_codes};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q4_1",
    gguf_id: 3,
    elements: 32,
    bytes: 20,
    panel: PanelType::Q4M,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], slot: usize, parts: &mut BlockFields) {
    parts.d[slot] = word(block, 0);
    parts.m[slot] = word(block, 2);
    put_nibbles(&block[4..], &mut parts.codes[32 * slot..][..32]);
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = ImportanceWeights::new(weights);
    let mut parts = BlockFields::ZERO;
    (parts.d[0], parts.m[0]) = affine_half(values, weights.from(0), 15.0);
    let (d, m) = (half(parts.d[0]), half(parts.m[0]));
    put_codes(values, IntegerLevels(0.0, 15.0), d, m, &mut parts.codes[..32]);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, slot: usize, block: &mut [u8]) {
    block[..2].copy_from_slice(&parts.d[slot].to_le_bytes());
    block[2..4].copy_from_slice(&parts.m[slot].to_le_bytes());
    join_nibbles(&parts.codes[32 * slot..][..32], &mut block[4..]);
}
