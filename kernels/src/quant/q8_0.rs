//! Q8_0: f16 scale, 32 signed bytes; weight = d · byte.

use super::parts::{Parts, half, word};
use super::search::{Range, Reach, Weights, put_codes, symmetric_half};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q8_0",
    gguf_id: 8,
    elements: 32,
    bytes: 34,
    panel: PanelType::Q8,
    form: Form::Integer(split),
    encode: Some(encode),
};

fn split(block: &[u8], slot: usize, parts: &mut Parts) {
    parts.d[slot] = word(block, 0);
    parts.codes[32 * slot..][..32].copy_from_slice(&block[2..]);
}

const REACH: Reach = Reach { from: 0.99, to: 1.01, steps: 10 };

fn encode(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = Weights::new(weights);
    let mut codes = [0; 32];
    let d = symmetric_half(values, weights.from(0), Range(-127.0, 127.0), REACH);
    put_codes(values, Range(-127.0, 127.0), half(d), 0.0, &mut codes);
    block[..2].copy_from_slice(&d.to_le_bytes());
    for (byte, code) in block[2..].iter_mut().zip(codes) {
        *byte = code.wrapping_sub(127);
    }
}
