//! Q8_0: f16 scale, 32 signed bytes; weight = d · byte.

use super::bit_fields::{BlockFields, half, word};
use super::search::{IntegerLevels, Reach, ImportanceWeights, put_codes, symmetric_half};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q8_0",
    gguf_id: 8,
    elements: 32,
    bytes: 34,
    panel: PanelType::Q8,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], slot: usize, parts: &mut BlockFields) {
    parts.d[slot] = word(block, 0);
    parts.codes[32 * slot..][..32].copy_from_slice(&block[2..]);
}

const REACH: Reach = Reach { from: 0.99, to: 1.01, steps: 10 };

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = ImportanceWeights::new(weights);
    let mut parts = BlockFields::ZERO;
    parts.d[0] = symmetric_half(values, weights.from(0), IntegerLevels(-127.0, 127.0), REACH);
    put_codes(values, IntegerLevels(-127.0, 127.0), half(parts.d[0]), 0.0, &mut parts.codes[..32]);
    parts.codes[..32].iter_mut().for_each(|code| *code = code.wrapping_sub(127));
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, slot: usize, block: &mut [u8]) {
    block[..2].copy_from_slice(&parts.d[slot].to_le_bytes());
    block[2..].copy_from_slice(&parts.codes[32 * slot..][..32]);
}
