//! Granite 3: Llama's graph with four constant multipliers.

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES};
use super::descriptor::DefaultValue::{Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, Topology};
use crate::{Builder, Graph};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "granite",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "granite",
            class: Some("GraniteForCausalLM"),
            defaults: &[
                ("attention_multiplier", Number(1.0)),
                ("embedding_multiplier", Number(1.0)),
                ("hidden_act", Word("silu")),
                ("logits_scaling", Number(1.0)),
                ("residual_multiplier", Number(1.0)),
                ("rms_norm_eps", Number(1e-6)),
            ],
        }],
        prefix: "model",
        rules: &[LLAMA_RULES],
        keys: HuggingFaceKeys::LLAMA_WITH_BIASES,
    },
    gguf: GgufConfig { architectures: &["granite"], rules: &[LLAMA_GGUF_RULES], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

pub(super) fn graph(config: &ConfigReader, model_config: &ModelConfig, b: Builder<'_>) -> Result<Graph> {
    let number = |keys: &[&str]| config.number(keys).map(|number| number.map(|number| number as f32));
    let scale =
        number(&["attention_multiplier", "attention.scale"])?.unwrap_or(model_config.attention_scale());
    let divisor = number(&["logits_scaling", "logit_scale"])?.unwrap_or(1.0);
    if divisor == 0.0 {
        return Err(Error::corrupt("config.logits_scaling", "must not be zero"));
    }
    LlamaVariant {
        embedding: number(&["embedding_multiplier", "embedding_scale"])?.unwrap_or(1.0),
        residual: number(&["residual_multiplier", "residual_scale"])?.unwrap_or(1.0),
        logits: 1.0 / divisor,
        attention: Box::new(move |attention| attention.scale = scale),
        ..LlamaVariant::default()
    }
    .graph(config, model_config, b)
}
