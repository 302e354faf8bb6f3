//! Q5_K: f16 d and dmin, 8 6-bit scale and minimum pairs, 256 fifth bits, 256 nibbles; weight = d · sc · code − dmin · mn.

use super::q4_k::put_scales;
use super::parts::{Parts, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q5_K",
    gguf_id: 13,
    elements: 256,
    bytes: 176,
    panel: PanelType::Q5K,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
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
