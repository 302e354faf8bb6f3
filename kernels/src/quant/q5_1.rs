//! Q5_1: f16 scale and minimum, 32 fifth bits, 32 nibbles; weight = d · code + m.

use super::q5_0::{fifth_bits, put_fifth_bits};
use super::bit_fields::{BlockFields, double_word, half, join_nibbles, put_nibbles, word};
use super::search::{IntegerLevels, ImportanceWeights, affine_half, put_codes};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q5_1",
    gguf_id: 7,
    elements: 32,
    bytes: 24,
    panel: PanelType::Q5M,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], slot: usize, parts: &mut BlockFields) {
    parts.d[slot] = word(block, 0);
    parts.m[slot] = word(block, 2);
    put_nibbles(&block[8..], &mut parts.codes[32 * slot..][..32]);
    put_fifth_bits(double_word(block, 4), &mut parts.codes[32 * slot..][..32]);
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = ImportanceWeights::new(weights);
    let mut parts = BlockFields::ZERO;
    (parts.d[0], parts.m[0]) = affine_half(values, weights.from(0), 31.0);
    let (d, m) = (half(parts.d[0]), half(parts.m[0]));
    put_codes(values, IntegerLevels(0.0, 31.0), d, m, &mut parts.codes[..32]);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, slot: usize, block: &mut [u8]) {
    let codes = &parts.codes[32 * slot..][..32];
    block[..2].copy_from_slice(&parts.d[slot].to_le_bytes());
    block[2..4].copy_from_slice(&parts.m[slot].to_le_bytes());
    block[4..8].copy_from_slice(&fifth_bits(codes));
    join_nibbles(codes, &mut block[8..]);
}
