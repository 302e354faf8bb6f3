//! Q6_K: 256 nibbles, 256 2-bit high parts, 16 signed scales, f16 d; weight = d · sc · (code − 32).

use super::bit_fields::{BlockFields, join_nibbles, join_pairs, put_nibbles, word};
use super::search::{IntegerLevels, Reach};
use super::two_level::symmetric_factors;
use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;

pub(super) const CODEC: BlockCodec = BlockCodec {
    name: "Q6_K",
    gguf_id: 14,
    elements: 256,
    bytes: 210,
    panel: PanelType::Q6K,
    form: BlockForm::Integer(split),
    quantize: Some(quantize),
    join: Some(join),
};

fn split(block: &[u8], _: usize, parts: &mut BlockFields) {
    for (bytes, codes) in block[..128].chunks_exact(64).zip(parts.codes.chunks_exact_mut(128)) {
        put_nibbles(bytes, codes);
    }
    for (bytes, codes) in block[128..192].chunks_exact(32).zip(parts.codes.chunks_exact_mut(128)) {
        for (t, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in codes.iter_mut().zip(bytes) {
                *code |= (byte >> (2 * t) & 3) << 4;
            }
        }
    }
    parts.scales.copy_from_slice(&block[192..208]);
    parts.d[0] = word(block, 208);
}

const REACH: Reach = Reach { from: 0.95, to: 1.1, steps: 12 };

fn quantize(values: &[f32], weights: Option<&[f32]>, block: &mut [u8]) {
    let mut parts = BlockFields::ZERO;
    symmetric_factors(values, weights, (IntegerLevels(-32.0, 31.0), REACH, 16, -128.0), &mut parts);
    join(&parts, 0, block);
}

/// Inverse of [`split`]: writes a block from its fields.
fn join(parts: &BlockFields, _: usize, block: &mut [u8]) {
    for (bytes, codes) in block[..128].chunks_exact_mut(64).zip(parts.codes.chunks_exact(128)) {
        join_nibbles(codes, bytes);
    }
    join_pairs(&parts.codes.map(|code| code >> 4), &mut block[128..192]);
    block[192..208].copy_from_slice(&parts.scales);
    block[208..].copy_from_slice(&parts.d[0].to_le_bytes());
}
