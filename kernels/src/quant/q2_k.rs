//! Q2_K: 16 scale and minimum nibble pairs, 256 2-bit codes, f16 d and dmin; weight = d · sc · code − dmin · mn.

use super::bit_fields::{BlockFields, join_pairs, put_pairs, word};
use super::two_level::affine_factors;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q2_K",
    gguf_id: 10,
    elements: 256,
    bytes: 84,
    panel: PanelType::Q2K,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    for (s, &byte) in block[..16].iter().enumerate() {
        parts.scales[s] = byte & 15;
        parts.mins[s] = byte >> 4;
    }
    put_pairs(&block[16..80], &mut parts.codes);
    parts.d[0] = word(block, 80);
    parts.m[0] = word(block, 82);
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    affine_factors(values, weights, (3.0, 16, 15.0), &mut parts);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    for (s, byte) in block[..16].iter_mut().enumerate() {
        *byte = parts.scales[s] & 15 | parts.mins[s] << 4;
    }
    join_pairs(&parts.codes, &mut block[16..80]);
    block[80..82].copy_from_slice(&parts.d[0].to_le_bytes());
    block[82..84].copy_from_slice(&parts.m[0].to_le_bytes());
}
