//! Qwen 3: Llama's graph with QK-norm per head.

use super::blocks::LLAMA_RULES;
use super::llama::LlamaVariant;
use super::{Family, Topology, qwen2};

pub(super) static FAMILY: Family = Family {
    name: "qwen3",
    hugging_face: &["qwen3"],
    gguf: &["qwen3"],
    hugging_face_rules: LLAMA_RULES,
    gguf_rules: &[],
    hyper: qwen2::hyper,
    form: Topology::Decoder(|config, hyper, b| {
        LlamaVariant { head_norm: true, ..LlamaVariant::default() }.graph(config, hyper, b)
    }),
};
