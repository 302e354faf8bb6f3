//! Qwen 2 and 2.5: Llama's graph with biases on queries, keys and values.

use super::blocks::LLAMA_RULES;
use super::llama::LlamaVariant;
use super::{ConfigReader, Family, ModelConfig, Topology};
use crate::Result;

pub(super) static FAMILY: Family = Family {
    name: "qwen2",
    hugging_face: &["qwen2"],
    gguf: &["qwen2"],
    hugging_face_rules: LLAMA_RULES,
    gguf_rules: &[],
    hyper,
    form: Topology::Decoder(|config, hyper, b| LlamaVariant::default().graph(config, hyper, b)),
};

/// The sliding window, if enabled, applies to the layers from `max_window_layers` on.
pub(super) fn hyper(config: &ConfigReader) -> Result<ModelConfig> {
    let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
    let switched_on = config.flag(&["use_sliding_window"])?.unwrap_or(false);
    let first = config.count(&["max_window_layers"])?.unwrap_or(0);
    hyper.slide(config, |layer| switched_on && layer >= first)?;
    Ok(hyper)
}
