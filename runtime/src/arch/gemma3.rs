//! Gemma 3 (text): Gemma 2's blocks, QK-norm instead of softcaps, local layers with a RoPE base of their own.

use super::gemma2::{self, Gemma};
use super::{ConfigReader, Family, ModelConfig, Topology, rope_frequencies};
use crate::Result;
use crate::graph::{Attention, Rope};

pub(super) static FAMILY: Family = Family {
    name: "gemma3",
    hugging_face: &["gemma3_text", "gemma3"],
    gguf: &["gemma3", "gemma-embedding"],
    hugging_face_rules: gemma2::RULES,
    gguf_rules: gemma2::FAMILY.gguf_rules,
    hyper: |config| {
        let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
        let keys = ["_sliding_window_pattern", "sliding_window_pattern", "attention.sliding_window_pattern"];
        let pattern = config.count(&keys)?.unwrap_or(6).max(1);
        hyper.slide(config, |layer| (layer + 1) % pattern != 0)?;
        Ok(hyper)
    },
    form: Topology::Decoder(|config, hyper, mut b| {
        let full = b.rope_table(rope_frequencies::read_kind(config, hyper, "full_attention", 1_000_000.0)?);
        let local = b.rope_table(local_rope(config, hyper)?);
        let scale = gemma2::attention_scale(config, hyper)?;
        let softcap = config.number(&["attn_logit_softcapping"])?.map(|cap| cap as f32);
        let adjust = |attention: &mut Attention| {
            attention.scale = scale;
            attention.softcap = softcap;
        };
        let rope_of = |layer: usize| if hyper.windows[layer].is_some() { local } else { full };
        Gemma { head_norm: true, rope_of: &rope_of, adjust: &adjust }.graph(config, hyper, b)
    }),
};

/// Local layers have their own RoPE base and no scaling; configurations without `rope_parameters` have a separate key
/// for it.
fn local_rope(config: &ConfigReader, hyper: &ModelConfig) -> Result<Rope> {
    if config.get("rope_parameters/sliding_attention").is_some() {
        return rope_frequencies::read_kind(config, hyper, "sliding_attention", 10_000.0);
    }
    let theta = config.number(&["rope_local_base_freq", "rope.freq_base_swa"])?.unwrap_or(10_000.0);
    rope_frequencies::unscaled(config, hyper, theta)
}
