//! Q5_1: f16 scale and minimum, 32 fifth bits, 32 nibbles; weight = d · code + m.

use super::q5_0::put_fifth_bits;
use super::parts::{Parts, double_word, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q5_1",
    gguf_id: 7,
    elements: 32,
    bytes: 24,
    panel: PanelType::Q5M,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    parts.m[slot] = word(block, 2);
    put_nibbles(&block[8..], &mut parts.codes[32 * slot..][..32]);
    put_fifth_bits(double_word(block, 4), &mut parts.codes[32 * slot..][..32]);
}
