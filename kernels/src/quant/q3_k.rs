//! Q3_K: 256 third bits, 256 2-bit codes, 16 6-bit scales, f16 d; weight = d · (sc − 32) · (code − 4).

use super::parts::{Parts, put_pairs, word};
use super::{Codec, Form};
use crate::panel::PanelType;

pub(super) const CODEC: Codec = Codec {
    name: "Q3_K",
    gguf_id: 11,
    elements: 256,
    bytes: 110,
    panel: PanelType::Q3K,
    form: Form::Integer(split),
    encode: None,
};

fn split(block: &[u8], _: usize, parts: &mut Parts) {
    put_pairs(&block[32..96], &mut parts.codes);
    for (t, codes) in parts.codes.chunks_exact_mut(32).enumerate() {
        for (code, &byte) in codes.iter_mut().zip(&block[..32]) {
            *code |= (byte >> t & 1) << 2;
        }
    }
    for s in 0..16 {
        let low = block[96 + s % 8] >> (4 * (s / 8)) & 15;
        let high = block[104 + s % 4] >> (2 * (s / 4)) & 3;
        parts.scales[s] = (low | high << 4).wrapping_sub(32);
    }
    parts.d[0] = word(block, 108);
}
