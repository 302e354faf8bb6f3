//! IQ4_NL: f16 scale, 32 nibbles; weight = d · codebook[nibble].

use super::parts::{Parts, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "IQ4_NL",
    gguf_id: 20,
    elements: 32,
    bytes: 18,
    panel: PanelType::Q4NL,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    put_nibbles(&block[2..], &mut parts.codes[32 * slot..][..32]);
}
