//! Q5_0: f16 scale, 32 fifth bits, 32 nibbles; weight = d · (code − 16).

use super::parts::{Parts, double_word, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q5_0",
    gguf_id: 6,
    elements: 32,
    bytes: 22,
    panel: PanelType::Q5,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    put_nibbles(&block[6..], &mut parts.codes[32 * slot..][..32]);
    put_fifth_bits(double_word(block, 2), &mut parts.codes[32 * slot..][..32]);
}

/// Sets bit 4 of code i to bit i.
pub(super) fn put_fifth_bits(bits: u32, codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> i & 1) as u8) << 4;
    }
}
