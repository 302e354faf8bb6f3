//! Qwen 2 and 2.5: Llama's graph with biases on queries, keys and values.

use super::blocks::LLAMA_RULES;
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, Topology};
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "qwen2",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: model_config,
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant::default().graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "qwen2",
            class: Some("Qwen2ForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("max_window_layers", Count(28)),
                ("num_key_value_heads", Count(32)),
                ("rms_norm_eps", Number(1e-6)),
                ("use_sliding_window", Flag(false)),
            ],
        }],
        prefix: "model",
        rules: &[LLAMA_RULES],
        keys: HuggingFaceKeys::LLAMA,
    },
    gguf: GgufConfig { architectures: &["qwen2"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// The sliding window, if enabled, applies to the layers from `max_window_layers` on.
pub(super) fn model_config(config: &ConfigReader) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
    let switched_on = config.flag(&["use_sliding_window"])?.unwrap_or(false);
    let first = config.count(&["max_window_layers"])?.unwrap_or(0);
    model_config.slide(config, |layer| switched_on && layer >= first)?;
    Ok(model_config)
}
