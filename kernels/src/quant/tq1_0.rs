//! TQ1_0: five ternary digits per byte, f16 d; weight = d · (digit − 1).

use super::bit_fields::{BlockFields, word};
use super::tq2_0::ternary;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "TQ1_0",
    gguf_id: 34,
    elements: 256,
    bytes: 54,
    panel: PanelType::TERNARY,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    put_digits(&block[..32], &mut parts.codes[..160]);
    put_digits(&block[32..48], &mut parts.codes[160..240]);
    put_digits(&block[48..52], &mut parts.codes[240..]);
    parts.d[0] = word(block, 52);
}

/// Unpacks the digits of each byte, which holds a base-3 number scaled to 256, to one run of codes for each
/// digit.
fn put_digits(bytes: &[u8], codes: &mut [u8]) {
    let mut power = 1u8;
    for codes in codes.chunks_exact_mut(bytes.len()) {
        for (code, &byte) in codes.iter_mut().zip(bytes) {
            *code = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8;
        }
        power = power.wrapping_mul(3);
    }
}

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    (parts.codes, parts.d[0]) = ternary(values, weights);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    join_digits(&parts.codes[..160], &mut block[..32]);
    join_digits(&parts.codes[160..240], &mut block[32..48]);
    join_digits(&parts.codes[240..], &mut block[48..52]);
    block[52..].copy_from_slice(&parts.d[0].to_le_bytes());
}

/// Packs digits; the inverse of [`put_digits`]. Rounds up, so that truncation recovers every digit. Codes above 2 are no
/// digits, and give any byte.
fn join_digits(codes: &[u8], bytes: &mut [u8]) {
    let stride = bytes.len();
    for (i, byte) in bytes.iter_mut().enumerate() {
        let digits = (0..5).map(|t| codes.get(t * stride + i).map_or(0, |&code| u32::from(code)));
        let number = digits.fold(0, |number, digit| 3 * number + digit);
        *byte = (number * 256).div_ceil(243) as u8;
    }
}
