//! MXFP4: power-of-two scale, 32 FP4 nibbles; weight = 2^(e − 128) · doubled codebook[nibble].

use super::parts::{Parts, put_nibbles};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "MXFP4",
    gguf_id: 39,
    elements: 32,
    bytes: 17,
    panel: PanelType::MXFP4,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = scale_bits(block[0]);
    put_nibbles(&block[1..], &mut parts.codes[32 * slot..][..32]);
}

/// The bf16 bits of 2^(exponent − 128); the two smallest are subnormal.
fn scale_bits(exponent: u8) -> u16 {
    match exponent {
        0 => 0x0020,
        1 => 0x0040,
        _ => u16::from(exponent - 1) << 7,
    }
}
