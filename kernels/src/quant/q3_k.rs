//! Q3_K: 256 third bits, 256 2-bit codes, 16 6-bit scales, f16 d; weight = d · (sc − 32) · (code − 4).

use super::bit_fields::{BlockFields, join_pairs, put_pairs, word};
use super::search::{IntegerLevels, Reach};
use super::two_level::symmetric_factors;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q3_K",
    gguf_id: 11,
    elements: 256,
    bytes: 110,
    panel: PanelType::Q3K,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    put_pairs(&block[32..96], &mut parts.codes);
    for (t, codes) in parts.codes.chunks_exact_mut(32).enumerate() {
        for (code, &byte) in codes.iter_mut().zip(&block[..32]) {
            *code |= (byte >> t & 1) << 2;
        }
    }
    for s in 0..16 {
        let low = block[96 + s % 8] >> (4 * (s / 8)) & 15;
        let high = block[104 + s % 4] >> (2 * (s / 4)) & 3;
        parts.scales[s] = (low | high << 4).wrapping_sub(32);
    }
    parts.d[0] = word(block, 108);
}

const REACH: Reach = Reach { from: 0.7, to: 1.6, steps: 18 };

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    symmetric_factors(values, weights, (IntegerLevels(-4.0, 3.0), REACH, 16, -32.0), &mut parts);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    for (i, byte) in block[..32].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |byte, t| byte | (parts.codes[32 * t + i] >> 2 & 1) << t);
    }
    join_pairs(&parts.codes, &mut block[32..96]);
    let scale = |s: usize| parts.scales[s].wrapping_add(32);
    for i in 0..8 {
        block[96 + i] = scale(i) & 15 | scale(i + 8) << 4;
    }
    for i in 0..4 {
        block[104 + i] = (0..4).fold(0, |byte, t| byte | (scale(4 * t + i) >> 4) << (2 * t));
    }
    block[108..].copy_from_slice(&parts.d[0].to_le_bytes());
}
