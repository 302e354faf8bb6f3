//! Qwen3 with MoE.

use super::blocks::LLAMA_RULES;
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, Initialization, ModelType, OnnxNames, Tasks,
    TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, experts, qwen2_moe};

pub(super) static FAMILY: Family = Family {
    name: "qwen3moe",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        let switched_on = config.flag(&["use_sliding_window"])?.unwrap_or(false);
        model_config
            .windows
            .fill(config.count(&["sliding_window"])?.filter(|&window| switched_on && window > 0));
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant { head_norm: true, ..LlamaVariant::default() }.graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "qwen3_moe",
            class: Some("Qwen3MoeForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("norm_topk_prob", Flag(false)),
                ("num_experts_per_tok", Count(8)),
                ("num_key_value_heads", Count(4)),
                ("rms_norm_eps", Number(1e-6)),
                ("use_sliding_window", Flag(false)),
            ],
        }],
        prefix: "model",
        rules: RULES,
        keys: qwen2_moe::KEYS,
    },
    gguf: GgufConfig { architectures: &["qwen3moe"], rules: &[&experts::STACKED], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
    // The sliding window, if enabled, applies to all layers.
};

const RULES: &[&[TensorRule]] = &[&experts::QWEN_RULES, LLAMA_RULES];
