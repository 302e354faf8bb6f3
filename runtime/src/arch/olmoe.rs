//! OLMoE: Llama with MoE, and QK-norm over all heads.

use super::blocks::LLAMA_RULES;
use super::llama::LlamaVariant;
use super::{Family, ModelConfig, TensorRule, Topology, experts, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "olmoe",
    hugging_face: &["olmoe"],
    gguf: &["olmoe"],
    hugging_face_rules: &RULES,
    gguf_rules: &experts::STACKED,
    hyper: |config| ModelConfig::read(config, |width| 4 * width),
    form: Topology::Decoder(|config, hyper, b| {
        let clamp = config.number(&["clip_qkv", "attention.clamp_kqv"])?.map(|limit| limit as f32);
        LlamaVariant { row_norm: true, normalizes: false, clamp, ..LlamaVariant::default() }
            .graph(config, hyper, b)
    }),
};

const RULES: [TensorRule; experts::QWEN_RULES.len() + LLAMA_RULES.len()] =
    tensor_map::joined(&experts::QWEN_RULES, LLAMA_RULES);
