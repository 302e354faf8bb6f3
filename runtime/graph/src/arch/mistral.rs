//! Mistral: Llama's graph with a sliding window on every layer.

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{Family, FamilyDescriptor, ModelConfig, Topology, llama};

pub(super) static FAMILY: Family = Family {
    name: "mistral",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        model_config.slide(config, |_| true)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant::default().graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "mistral",
            class: Some("MistralForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("num_key_value_heads", Count(8)),
                ("rms_norm_eps", Number(1e-6)),
                ("sliding_window", Count(4096)),
            ],
        }],
        prefix: "model",
        rules: &[LLAMA_RULES],
        keys: HuggingFaceKeys::LLAMA,
    },
    gguf: GgufConfig {
        architectures: &["mistral"],
        rules: &[LLAMA_GGUF_RULES],
        keys: GgufKeys { runs_as: Some(&llama::DESCRIPTOR), ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};
