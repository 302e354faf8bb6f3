//! MXFP4: power-of-two scale, 32 FP4 nibbles; weight = 2^(e − 128) · doubled codebook[nibble].

use super::bit_fields::{BlockFields, join_nibbles, put_nibbles};
use super::codebooks::FP4_DOUBLED;
use super::search::{Levels, ImportanceWeights, error, peak, put_codes};
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "MXFP4",
    gguf_id: 39,
    elements: 32,
    bytes: 17,
    panel: PanelType::MXFP4,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], slot: usize, parts: &mut BlockFields) {
    parts.d[slot] = scale_bits(block[0]);
    put_nibbles(&block[1..], &mut parts.codes[32 * slot..][..32]);
}

/// Returns the bf16 bits of 2^(exponent − 128); the two smallest are subnormal.
fn scale_bits(exponent: u8) -> u16 {
    match exponent {
        0 => 0x0020,
        1 => 0x0040,
        _ => u16::from(exponent - 1) << 7,
    }
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let weights = ImportanceWeights::new(weights);
    // The exponent that scales the peak into 4 … 8, the top of the range before doubling, and its neighbors.
    let usual = (peak(values).to_bits() >> 23 & 0xff).saturating_sub(2).min(254) as u8;
    let mut best = (f32::INFINITY, 0);
    for exponent in [usual, usual.saturating_add(1).min(254), usual.saturating_sub(1)] {
        let error = error(values, weights.from(0), Fp4, scale(exponent), 0.0);
        if error < best.0 {
            best = (error, exponent);
        }
    }
    let mut parts = BlockFields::ZERO;
    parts.d[0] = scale_bits(best.1);
    put_codes(values, Fp4, scale(best.1), 0.0, &mut parts.codes[..32]);
    join(&parts, 0, block);
}

fn scale(exponent: u8) -> f32 {
    f32::from_bits(u32::from(scale_bits(exponent)) << 16)
}

/// The doubled values of FP4.
#[derive(Clone, Copy)]
struct Fp4;

impl Levels for Fp4 {
    #[inline(always)]
    fn level(self, x: f32) -> f32 {
        f32::from(FP4_DOUBLED[usize::from(self.code(x))])
    }

    #[inline(always)]
    fn code(self, x: f32) -> u8 {
        let above = |pair: &[i8]| u8::from(2.0 * x.abs() > f32::from(pair[0]) + f32::from(pair[1]));
        let size: u8 = FP4_DOUBLED[..8].windows(2).map(above).sum();
        if x < 0.0 && size > 0 { size | 8 } else { size }
    }

    fn ends(self) -> [f32; 2] {
        [-12.0, 12.0]
    }
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, slot: usize, block: &mut [u8]) {
    block[0] = exponent(parts.d[slot]);
    join_nibbles(&parts.codes[32 * slot..][..32], &mut block[1..]);
}

/// Returns the exponent, the inverse of [`scale_bits`].
fn exponent(bits: u16) -> u8 {
    match bits {
        0x0020 => 0,
        0x0040 => 1,
        _ => (bits >> 7) as u8 + 1,
    }
}
