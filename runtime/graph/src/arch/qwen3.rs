//! Qwen 3: Llama's graph with QK-norm per head.

use super::blocks::LLAMA_RULES;
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{Family, FamilyDescriptor, Topology, qwen2};

pub(super) static FAMILY: Family = Family {
    name: "qwen3",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: qwen2::model_config,
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant { head_norm: true, ..LlamaVariant::default() }.graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "qwen3",
            class: Some("Qwen3ForCausalLM"),
            defaults: &[
                ("head_dim", Count(128)),
                ("hidden_act", Word("silu")),
                ("max_window_layers", Count(28)),
                ("num_key_value_heads", Count(32)),
                ("rms_norm_eps", Number(1e-6)),
                ("use_sliding_window", Flag(false)),
            ],
        }],
        prefix: "model",
        rules: &[LLAMA_RULES],
        keys: HuggingFaceKeys::LLAMA_WITH_BIASES,
    },
    gguf: GgufConfig { architectures: &["qwen3"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};
