//! TQ1_0: five ternary digits a byte, f16 d; weight = d · (digit − 1).

use super::parts::{Parts, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "TQ1_0",
    gguf_id: 34,
    elements: 256,
    bytes: 54,
    panel: PanelType::TERNARY,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
    put_digits(&block[..32], &mut parts.codes[..160]);
    put_digits(&block[32..48], &mut parts.codes[160..240]);
    put_digits(&block[48..52], &mut parts.codes[240..]);
    parts.d[0] = word(block, 52);
}

/// Takes the digits of each byte, which is their base-3 number scaled to 256, to one run of codes per digit.
fn put_digits(bytes: &[u8], codes: &mut [u8]) {
    let mut power = 1u8;
    for codes in codes.chunks_exact_mut(bytes.len()) {
        for (code, &byte) in codes.iter_mut().zip(bytes) {
            *code = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8;
        }
        power = power.wrapping_mul(3);
    }
}
