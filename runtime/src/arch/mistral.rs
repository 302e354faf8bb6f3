//! Mistral: Llama's graph with a sliding window on every layer.

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES};
use super::llama::LlamaVariant;
use super::{Family, ModelConfig, Topology};

pub(super) static FAMILY: Family = Family {
    name: "mistral",
    hugging_face: &["mistral"],
    gguf: &["mistral"],
    hugging_face_rules: LLAMA_RULES,
    gguf_rules: LLAMA_GGUF_RULES,
    hyper: |config| {
        let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
        hyper.slide(config, |_| true)?;
        Ok(hyper)
    },
    form: Topology::Decoder(|config, hyper, b| LlamaVariant::default().graph(config, hyper, b)),
};
