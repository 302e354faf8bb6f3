//! IQ4_XS: f16 d, 8 6-bit scales, 256 nibbles; weight = d · (sc − 32) · codebook[nibble].

use super::parts::{Parts, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "IQ4_XS",
    gguf_id: 23,
    elements: 256,
    bytes: 136,
    panel: PanelType::IQ4XS,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
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
