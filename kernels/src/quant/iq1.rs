//! IQ1_S and IQ1_M: groups of 8 from a ternary grid, shifted by ±1/8; stored as integers, times eight.

use super::grids::{IQ1, IQ1_LEVELS, put_eight};
use super::bit_fields::{BlockFields, half, word};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

/// IQ1_S: f16 d, 32 low index bytes, 8 words of high index bits, scale and sign of the shift.
pub(super) const SMALL: BlockCodec = BlockCodec {
    name: "IQ1_S",
    gguf_id: 19,
    elements: 256,
    bytes: 50,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_small),
    quantize: None,
    join: None,
};

/// IQ1_M: 32 low index bytes, 32 nibbles of high index bits and sign of the shift, 4 words of scales that also hold d.
pub(super) const MEDIUM: BlockCodec = BlockCodec {
    name: "IQ1_M",
    gguf_id: 29,
    elements: 256,
    bytes: 56,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_medium),
    quantize: None,
    join: None,
};

fn split_small(block: &[u8], _: usize, parts: &mut BlockFields) {
    let d = half(word(block, 0));
    for s in 0..8 {
        let high = word(block, 34 + 2 * s);
        let scale = d * f32::from(2 * (high >> 12 & 7) + 1);
        parts.exact[2 * s] = scale * 0.125;
        parts.exact[2 * s + 1] = scale * 0.125;
        for i in 0..4 {
            let index = u16::from(block[2 + 4 * s + i]) | (high >> (3 * i) & 7) << 8;
            put_group(index, high & 0x8000 != 0, &mut parts.codes[32 * s + 8 * i..]);
        }
    }
}

fn split_medium(block: &[u8], _: usize, parts: &mut BlockFields) {
    let d = (0..4).fold(0, |bits, i| bits | (word(block, 48 + 2 * i) >> 12) << (4 * i));
    for s in 0..16 {
        let scale = word(block, 48 + 2 * (s / 4)) >> (3 * (s % 4)) & 7;
        parts.exact[s] = half(d) * f32::from(2 * scale + 1) * 0.125;
    }
    for i in 0..32 {
        let high = block[32 + i / 2] >> (4 * (i % 2));
        put_group(u16::from(block[i]) | u16::from(high & 7) << 8, high & 8 != 0, &mut parts.codes[8 * i..]);
    }
}

fn put_group(index: u16, below: bool, codes: &mut [u8]) {
    put_eight(IQ1[usize::from(index) % IQ1.len()], &IQ1_LEVELS, 0, codes);
    for code in codes.iter_mut().take(8) {
        *code = code.wrapping_add(if below { 0xff } else { 1 });
    }
}
