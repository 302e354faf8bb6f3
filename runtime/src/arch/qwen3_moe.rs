//! Qwen3 with MoE.

use super::blocks::LLAMA_RULES;
use super::llama::LlamaVariant;
use super::{Family, ModelConfig, TensorRule, Topology, experts, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "qwen3moe",
    hugging_face: &["qwen3_moe"],
    gguf: &["qwen3moe"],
    hugging_face_rules: &RULES,
    gguf_rules: &experts::STACKED,
    // The sliding window, if enabled, applies to all layers.
    hyper: |config| {
        let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
        let switched_on = config.flag(&["use_sliding_window"])?.unwrap_or(false);
        hyper.windows.fill(config.count(&["sliding_window"])?.filter(|&window| switched_on && window > 0));
        Ok(hyper)
    },
    form: Topology::Decoder(|config, hyper, b| {
        LlamaVariant { head_norm: true, ..LlamaVariant::default() }.graph(config, hyper, b)
    }),
};

const RULES: [TensorRule; experts::QWEN_RULES.len() + LLAMA_RULES.len()] =
    tensor_map::joined(&experts::QWEN_RULES, LLAMA_RULES);
