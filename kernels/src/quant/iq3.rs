//! IQ3_XXS and IQ3_S: signed groups of 4 from a grid of magnitudes.

use super::grids::{IQ3_S, IQ3_S_LEVELS, IQ3_XXS, IQ3_XXS_LEVELS, put_four, signs};
use super::bit_fields::{BlockFields, double_word, half, word};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

/// IQ3_XXS: f16 d, 64 index bytes, 8 words of four 7-bit signs and a scale.
pub(super) const TINY: BlockCodec = BlockCodec {
    name: "IQ3_XXS",
    gguf_id: 18,
    elements: 256,
    bytes: 98,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_tiny),
    quantize: None,
    join: None,
};

/// IQ3_S: f16 d, 64 low index bytes, 64 ninth index bits, 32 sign bytes, 8 scale nibbles.
pub(super) const SMALL: BlockCodec = BlockCodec {
    name: "IQ3_S",
    gguf_id: 21,
    elements: 256,
    bytes: 110,
    panel: PanelType::Q8S16,
    form: BlockForm::Integer(split_small),
    quantize: None,
    join: None,
};

fn split_tiny(block: &[u8], _: usize, parts: &mut BlockFields) {
    let d = half(word(block, 0));
    for s in 0..8 {
        let rest = double_word(block, 66 + 4 * s);
        put_scale(d * (0.5 + (rest >> 28) as f32) * 0.5, s, parts);
        for i in 0..8 {
            let signs = signs(rest >> (7 * (i / 2))) >> (4 * (i % 2));
            let entry = IQ3_XXS[usize::from(block[2 + 8 * s + i])];
            put_four(entry, &IQ3_XXS_LEVELS, signs, &mut parts.codes[32 * s + 4 * i..]);
        }
    }
}

fn split_small(block: &[u8], _: usize, parts: &mut BlockFields) {
    let d = half(word(block, 0));
    for s in 0..8 {
        let scale = block[106 + s / 2] >> (4 * (s % 2)) & 15;
        put_scale(d * f32::from(1 + 2 * scale), s, parts);
    }
    for i in 0..64 {
        let index = usize::from(block[2 + i]) | usize::from(block[66 + i / 8] >> (i % 8) & 1) << 8;
        let signs = block[74 + i / 2] >> (4 * (i % 2));
        put_four(IQ3_S[index], &IQ3_S_LEVELS, signs, &mut parts.codes[4 * i..]);
    }
}

fn put_scale(scale: f32, s: usize, parts: &mut BlockFields) {
    parts.exact[2 * s] = scale;
    parts.exact[2 * s + 1] = scale;
}
