//! Q8_0: f16 scale, 32 signed bytes; weight = d · byte.

use super::parts::{Parts, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q8_0",
    gguf_id: 8,
    elements: 32,
    bytes: 34,
    panel: PanelType::Q8,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    parts.codes[32 * slot..][..32].copy_from_slice(&block[2..]);
}
