//! TQ2_0: 256 2-bit codes, f16 d; weight = d · (code − 1).

use super::parts::{Parts, put_pairs, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "TQ2_0",
    gguf_id: 35,
    elements: 256,
    bytes: 66,
    panel: PanelType::TERNARY,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
    put_pairs(&block[..64], &mut parts.codes);
    parts.d[0] = word(block, 64);
}
