//! Q5_0: f16 scale, 32 fifth bits, 32 nibbles; weight = d · (code − 16).

use super::bit_fields::{BlockFields, double_word, half, join_nibbles, put_nibbles, word};
use super::search::{IntegerLevels, Reach, ImportanceWeights, put_codes, symmetric_half};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q5_0",
    gguf_id: 6,
    elements: 32,
    bytes: 22,
    panel: PanelType::Q5,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], slot: usize, parts: &mut BlockFields) {
    parts.d[slot] = word(block, 0);
    put_nibbles(&block[6..], &mut parts.codes[32 * slot..][..32]);
    put_fifth_bits(double_word(block, 2), &mut parts.codes[32 * slot..][..32]);
}

/// Sets bit 4 of code i to bit i.
#[inline]
pub(super) fn put_fifth_bits(bits: u32, codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> i & 1) as u8) << 4;
    }
}

const REACH: Reach = Reach { from: 0.93, to: 1.15, steps: 18 };

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = ImportanceWeights::new(weights);
    let mut parts = BlockFields::ZERO;
    parts.d[0] = symmetric_half(values, weights.from(0), IntegerLevels(-16.0, 15.0), REACH);
    put_codes(values, IntegerLevels(-16.0, 15.0), half(parts.d[0]), 0.0, &mut parts.codes[..32]);
    join(&parts, 0, block);
}

/// Returns bit 4 of each code, as four bytes.
pub(super) fn fifth_bits(codes: &[u8]) -> [u8; 4] {
    let bits = codes.iter().enumerate().fold(0, |bits, (i, &code)| bits | u32::from(code >> 4 & 1) << i);
    bits.to_le_bytes()
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, slot: usize, block: &mut [u8]) {
    let codes = &parts.codes[32 * slot..][..32];
    block[..2].copy_from_slice(&parts.d[slot].to_le_bytes());
    block[2..6].copy_from_slice(&fifth_bits(codes));
    join_nibbles(codes, &mut block[6..]);
}
