//! Q5_K: f16 d and dmin, 8 6-bit scale and minimum pairs, 256 fifth bits, 256 nibbles;
//! weight = d · sc · code − dmin · mn.

use super::q4_k::{join_scales, put_scales};
use super::bit_fields::{BlockFields, join_nibbles, put_nibbles, word};
use super::two_level::affine_factors;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q5_K",
    gguf_id: 13,
    elements: 256,
    bytes: 176,
    panel: PanelType::Q5K,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    parts.d[0] = word(block, 0);
    parts.m[0] = word(block, 2);
    put_scales(&block[4..16], parts);
    for (bytes, codes) in block[48..].chunks_exact(32).zip(parts.codes.chunks_exact_mut(64)) {
        put_nibbles(bytes, codes);
    }
    for (s, codes) in parts.codes.chunks_exact_mut(32).enumerate() {
        for (code, &byte) in codes.iter_mut().zip(&block[16..48]) {
            *code |= (byte >> s & 1) << 4;
        }
    }
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    affine_factors(values, weights, (31.0, 32, 63.0), &mut parts);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    block[0..2].copy_from_slice(&parts.d[0].to_le_bytes());
    block[2..4].copy_from_slice(&parts.m[0].to_le_bytes());
    join_scales(parts, &mut block[4..16]);
    for (i, byte) in block[16..48].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |byte, s| byte | (parts.codes[32 * s + i] >> 4 & 1) << s);
    }
    for (bytes, codes) in block[48..].chunks_exact_mut(32).zip(parts.codes.chunks_exact(64)) {
        join_nibbles(codes, bytes);
    }
}
