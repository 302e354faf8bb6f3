//! IQ4_XS: f16 d, 8 6-bit scales, 256 nibbles; weight = d · (sc − 32) · codebook[nibble].

use super::bit_fields::{BlockFields, join_nibbles, put_nibbles, word};
use super::codebooks::IQ4_NL;
use super::search::{Reach, TableLevels};
use super::two_level::symmetric_factors;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "IQ4_XS",
    gguf_id: 23,
    elements: 256,
    bytes: 136,
    panel: PanelType::IQ4XS,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    parts.d[0] = word(block, 0);
    let high = word(block, 2);
    for s in 0..8 {
        let low = block[4 + s / 2] >> (4 * (s % 2)) & 15;
        parts.scales[s] = (low | ((high >> (2 * s) & 3) as u8) << 4).wrapping_sub(32);
    }
    for (bytes, codes) in block[8..].chunks_exact(16).zip(parts.codes.chunks_exact_mut(32)) {
        put_nibbles(bytes, codes);
    }
}

const REACH: Reach = Reach { from: 0.8, to: 1.3, steps: 20 };

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    symmetric_factors(values, weights, (TableLevels(&IQ4_NL), REACH, 32, -32.0), &mut parts);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    block[..2].copy_from_slice(&parts.d[0].to_le_bytes());
    let scale = |s: usize| parts.scales[s].wrapping_add(32);
    let high = (0..8).fold(0, |word, s| word | u16::from(scale(s) >> 4) << (2 * s));
    block[2..4].copy_from_slice(&high.to_le_bytes());
    for i in 0..4 {
        block[4 + i] = scale(2 * i) & 15 | scale(2 * i + 1) << 4;
    }
    for (bytes, codes) in block[8..].chunks_exact_mut(16).zip(parts.codes.chunks_exact(32)) {
        join_nibbles(codes, bytes);
    }
}
