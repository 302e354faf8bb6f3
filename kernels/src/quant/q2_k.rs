//! Q2_K: 16 scale and minimum nibble pairs, 256 2-bit codes, f16 d and dmin; weight = d · sc · code − dmin · mn.

use super::parts::{Parts, put_pairs, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q2_K",
    gguf_id: 10,
    elements: 256,
    bytes: 84,
    panel: PanelType::Q2K,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
    for (s, &byte) in block[..16].iter().enumerate() {
        parts.scales[s] = byte & 15;
        parts.mins[s] = byte >> 4;
    }
    put_pairs(&block[16..80], &mut parts.codes);
    parts.d[0] = word(block, 80);
    parts.m[0] = word(block, 82);
}
