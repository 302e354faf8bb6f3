//! F32, F16 and BF16: a block is one element.

use super::{BlockCodec, BlockForm};
use crate::panel::PanelType;
use half::{bf16, f16};

pub(super) const F32: BlockCodec = BlockCodec {
    name: "F32",
    gguf_id: 0,
    elements: 1,
    bytes: 4,
    panel: PanelType::F32,
    form: BlockForm::Float(|bytes, out| convert(bytes, out, f32::from_le_bytes)),
    quantize: Some(|values, _, out| out.copy_from_slice(&values[0].to_le_bytes())),
    join: None,
};

pub(super) const F16: BlockCodec = BlockCodec {
    name: "F16",
    gguf_id: 1,
    elements: 1,
    bytes: 2,
    panel: PanelType::F16,
    form: BlockForm::Float(|bytes, out| convert(bytes, out, |bytes| f16::from_le_bytes(bytes).to_f32())),
    quantize: Some(|values, _, out| out.copy_from_slice(&f16::from_f32(values[0]).to_le_bytes())),
    join: None,
};

pub(super) const BF16: BlockCodec = BlockCodec {
    name: "BF16",
    gguf_id: 30,
    elements: 1,
    bytes: 2,
    panel: PanelType::BF16,
    form: BlockForm::Float(|bytes, out| convert(bytes, out, |bytes: [u8; 2]| f32::from_le_bytes([0, 0, bytes[0], bytes[1]]))),
    quantize: Some(|values, _, out| out.copy_from_slice(&bf16::from_f32(values[0]).to_le_bytes())),
    join: None,
};

fn convert<const N: usize>(bytes: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    for (&bytes, out) in bytes.as_chunks::<N>().0.iter().zip(out) {
        *out = number(bytes);
    }
}
