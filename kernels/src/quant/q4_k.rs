//! Q4_K: f16 d and dmin, 8 6-bit scale and minimum pairs, 256 nibbles; weight = d · sc · nibble − dmin · mn.

use super::parts::{Parts, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q4_K",
    gguf_id: 12,
    elements: 256,
    bytes: 144,
    panel: PanelType::Q4K,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
    parts.d[0] = word(block, 0);
    parts.m[0] = word(block, 2);
    put_scales(&block[4..16], parts);
    for (bytes, codes) in block[16..].chunks_exact(32).zip(parts.codes.chunks_exact_mut(64)) {
        put_nibbles(bytes, codes);
    }
}

/// Takes the eight scales and minima out of their 12 bytes.
pub(super) fn put_scales(bytes: &[u8], parts: &mut Parts) {
    for s in 0..4 {
        let (scale, min, rest) = (bytes[s], bytes[4 + s], bytes[8 + s]);
        parts.scales[s] = scale & 63;
        parts.mins[s] = min & 63;
        parts.scales[4 + s] = rest & 15 | scale >> 2 & 48;
        parts.mins[4 + s] = rest >> 4 | min >> 2 & 48;
    }
}
