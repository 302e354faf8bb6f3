//! Q4_0: f16 scale, 32 nibbles; weight = d · (nibble − 8).

use super::parts::{Parts, put_nibbles, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q4_0",
    gguf_id: 2,
    elements: 32,
    bytes: 18,
    panel: PanelType::Q4,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    put_nibbles(&block[2..], &mut parts.codes[32 * slot..][..32]);
}
