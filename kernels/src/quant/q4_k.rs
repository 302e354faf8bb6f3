//! Q4_K: f16 d and dmin, 8 6-bit scale and minimum pairs, 256 nibbles; weight = d · sc · nibble − dmin · mn.

use super::bit_fields::{BlockFields, join_nibbles, put_nibbles, word};
use super::two_level::affine_factors;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q4_K",
    gguf_id: 12,
    elements: 256,
    bytes: 144,
    panel: PanelType::Q4K,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    parts.d[0] = word(block, 0);
    parts.m[0] = word(block, 2);
    put_scales(&block[4..16], parts);
    for (bytes, codes) in block[16..].chunks_exact(32).zip(parts.codes.chunks_exact_mut(64)) {
        put_nibbles(bytes, codes);
    }
}

/// Unpacks the eight scales and minimums from their 12 bytes.
#[inline]
pub(super) fn put_scales(bytes: &[u8], parts: &mut BlockFields) {
    for s in 0..4 {
        let (scale, min, rest) = (bytes[s], bytes[4 + s], bytes[8 + s]);
        parts.scales[s] = scale & 63;
        parts.mins[s] = min & 63;
        parts.scales[4 + s] = rest & 15 | scale >> 2 & 48;
        parts.mins[4 + s] = rest >> 4 | min >> 2 & 48;
    }
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    affine_factors(values, weights, (15.0, 32, 63.0), &mut parts);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    block[0..2].copy_from_slice(&parts.d[0].to_le_bytes());
    block[2..4].copy_from_slice(&parts.m[0].to_le_bytes());
    join_scales(parts, &mut block[4..16]);
    for (bytes, codes) in block[16..].chunks_exact_mut(32).zip(parts.codes.chunks_exact(64)) {
        join_nibbles(codes, bytes);
    }
}

/// Packs the eight scales and minimums; the inverse of [`put_scales`].
pub(super) fn join_scales(parts: &BlockFields, bytes: &mut [u8]) {
    for s in 0..4 {
        let (scale, min) = (parts.scales[4 + s], parts.mins[4 + s]);
        bytes[s] = parts.scales[s] & 63 | scale >> 4 << 6;
        bytes[4 + s] = parts.mins[s] & 63 | min >> 4 << 6;
        bytes[8 + s] = scale & 15 | min << 4;
    }
}
