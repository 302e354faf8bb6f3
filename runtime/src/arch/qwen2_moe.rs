//! Qwen2 with MoE and a shared expert.

use super::blocks::LLAMA_RULES;
use super::llama::LlamaVariant;
use super::{Family, ModelConfig, TensorRule, Topology, experts, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "qwen2moe",
    hugging_face: &["qwen2_moe"],
    gguf: &["qwen2moe"],
    hugging_face_rules: &RULES,
    gguf_rules: &experts::STACKED,
    // The sliding window, if enabled, applies to every other layer before `max_window_layers`.
    hyper: |config| {
        let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
        let switched_on = config.flag(&["use_sliding_window"])?.unwrap_or(false);
        let end = config.count(&["max_window_layers"])?.unwrap_or(usize::MAX);
        hyper.slide(config, |layer| switched_on && layer.is_multiple_of(2) && layer < end)?;
        Ok(hyper)
    },
    form: Topology::Decoder(|config, hyper, b| {
        LlamaVariant { normalizes: false, ..LlamaVariant::default() }.graph(config, hyper, b)
    }),
};

const EXPERTS: [TensorRule; experts::QWEN_RULES.len() + experts::SHARED_RULES.len()] =
    tensor_map::joined(&experts::QWEN_RULES, &experts::SHARED_RULES);

const RULES: [TensorRule; EXPERTS.len() + LLAMA_RULES.len()] = tensor_map::joined(&EXPERTS, LLAMA_RULES);
