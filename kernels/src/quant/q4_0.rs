//! Q4_0: f16 scale, 32 nibbles; weight = d · (nibble − 8).

use super::bit_fields::{BlockFields, half, join_nibbles, put_nibbles, word};
use super::search::{IntegerLevels, Reach, ImportanceWeights, put_codes, symmetric_half};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q4_0",
    gguf_id: 2,
    elements: 32,
    bytes: 18,
    panel: PanelType::Q4,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], slot: usize, parts: &mut BlockFields) {
    parts.d[slot] = word(block, 0);
    put_nibbles(&block[2..], &mut parts.codes[32 * slot..][..32]);
}

const REACH: Reach = Reach { from: 0.85, to: 1.3, steps: 18 };

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = ImportanceWeights::new(weights);
    let mut parts = BlockFields::ZERO;
    parts.d[0] = symmetric_half(values, weights.from(0), IntegerLevels(-8.0, 7.0), REACH);
    put_codes(values, IntegerLevels(-8.0, 7.0), half(parts.d[0]), 0.0, &mut parts.codes[..32]);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, slot: usize, block: &mut [u8]) {
    block[..2].copy_from_slice(&parts.d[slot].to_le_bytes());
    join_nibbles(&parts.codes[32 * slot..][..32], &mut block[2..]);
}
