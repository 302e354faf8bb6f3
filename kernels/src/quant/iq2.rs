//! IQ2_XXS, IQ2_XS and IQ2_S: signed groups of 8 from a grid of magnitudes.

use super::grids::{IQ2_LEVELS, IQ2_S, IQ2_XS, IQ2_XXS, put_eight, signs};
use super::bit_fields::{BlockFields, double_word, half, word};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

/// IQ2_XXS: f16 d; per 32 weights four index bytes and a word of four 7-bit signs and a scale.
pub(super) const TINY: BlockCodec = BlockCodec {
    name: "IQ2_XXS",
    gguf_id: 16,
    elements: 256,
    bytes: 66,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_tiny),
    quantize: None,
    join: None,
};

/// IQ2_XS: f16 d, 32 words of index and sign, 16 scale nibbles.
pub(super) const EXTRA_SMALL: BlockCodec = BlockCodec {
    name: "IQ2_XS",
    gguf_id: 17,
    elements: 256,
    bytes: 74,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_extra_small),
    quantize: None,
    join: None,
};

/// IQ2_S: f16 d, 32 low index bytes, 32 sign bytes, 32 2-bit high index parts, 16 scale nibbles.
pub(super) const SMALL: BlockCodec = BlockCodec {
    name: "IQ2_S",
    gguf_id: 22,
    elements: 256,
    bytes: 82,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_small),
    quantize: None,
    join: None,
};

fn split_tiny(block: &[u8], _: usize, parts: &mut BlockFields) {
    let d = half(word(block, 0));
    for s in 0..8 {
        let rest = double_word(block, 6 + 8 * s);
        let scale = d * (0.5 + (rest >> 28) as f32) * 0.25;
        parts.exact[2 * s] = scale;
        parts.exact[2 * s + 1] = scale;
        for i in 0..4 {
            let entry = IQ2_XXS[usize::from(block[2 + 8 * s + i])];
            put_eight(entry, &IQ2_LEVELS, signs(rest >> (7 * i)), &mut parts.codes[32 * s + 8 * i..]);
        }
    }
}

fn split_extra_small(block: &[u8], _: usize, parts: &mut BlockFields) {
    put_scales(half(word(block, 0)), &block[66..], parts);
    for i in 0..32 {
        let index = word(block, 2 + 2 * i);
        let entry = IQ2_XS[usize::from(index & 511)];
        put_eight(entry, &IQ2_LEVELS, signs(u32::from(index >> 9)), &mut parts.codes[8 * i..]);
    }
}

fn split_small(block: &[u8], _: usize, parts: &mut BlockFields) {
    put_scales(half(word(block, 0)), &block[74..], parts);
    for i in 0..32 {
        let index = usize::from(block[2 + i]) | usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3) << 8;
        put_eight(IQ2_S[index], &IQ2_LEVELS, block[34 + i], &mut parts.codes[8 * i..]);
    }
}

fn put_scales(d: f32, nibbles: &[u8], parts: &mut BlockFields) {
    for (s, scale) in parts.exact.iter_mut().enumerate() {
        *scale = d * (0.5 + f32::from(nibbles[s / 2] >> (4 * (s % 2)) & 15)) * 0.25;
    }
}
