//! Q4_1: f16 scale and minimum, 32 nibbles; weight = d · nibble + m.

use super::parts::{Parts, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q4_1",
    gguf_id: 3,
    elements: 32,
    bytes: 20,
    panel: PanelType::Q4M,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    parts.m[slot] = word(block, 2);
    put_nibbles(&block[4..], &mut parts.codes[32 * slot..][..32]);
}
