//! The text model of Qwen3.5: Qwen3-Next's graph without experts, with separate matrices.

use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, Topology, qwen3_next};

pub(super) static FAMILY: Family = Family {
    name: "qwen35",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: qwen3_next::read_model_config,
    topology: Topology::Decoder(qwen3_next::graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[
            ModelType {
                name: "qwen3_5_text",
                class: None,
                defaults: &[
                    ("head_dim", Count(256)),
                    ("hidden_act", Word("silu")),
                    ("hidden_size", Count(4096)),
                    ("intermediate_size", Count(12_288)),
                    ("linear_conv_kernel_dim", Count(4)),
                    ("linear_key_head_dim", Count(128)),
                    ("linear_num_key_heads", Count(16)),
                    ("linear_num_value_heads", Count(32)),
                    ("linear_value_head_dim", Count(128)),
                    ("max_position_embeddings", Count(32_768)),
                    ("num_attention_heads", Count(16)),
                    ("num_hidden_layers", Count(32)),
                    ("num_key_value_heads", Count(4)),
                    ("partial_rotary_factor", Number(0.25)),
                    ("rms_norm_eps", Number(1e-6)),
                    ("vocab_size", Count(248_320)),
                ],
            },
            ModelType {
                name: "qwen3_5",
                class: None,
                defaults: &[
                    ("head_dim", Count(256)),
                    ("hidden_act", Word("silu")),
                    ("hidden_size", Count(4096)),
                    ("intermediate_size", Count(12_288)),
                    ("linear_conv_kernel_dim", Count(4)),
                    ("linear_key_head_dim", Count(128)),
                    ("linear_num_key_heads", Count(16)),
                    ("linear_num_value_heads", Count(32)),
                    ("linear_value_head_dim", Count(128)),
                    ("max_position_embeddings", Count(32_768)),
                    ("num_attention_heads", Count(16)),
                    ("num_hidden_layers", Count(32)),
                    ("num_key_value_heads", Count(4)),
                    ("partial_rotary_factor", Number(0.25)),
                    ("rms_norm_eps", Number(1e-6)),
                    ("vocab_size", Count(248_320)),
                ],
            },
        ],
        prefix: "model",
        rules: RULES,
        keys: HuggingFaceKeys::LLAMA,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const STATE: [TensorRule; 4] = [
    whole!("blk.{}.ssm_qkv", "model.layers.{}.linear_attn.in_proj_qkv"),
    whole!("blk.{}.ssm_gate", "model.layers.{}.linear_attn.in_proj_z"),
    whole!("blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"),
    whole!("blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"),
];

const RULES: &[&[TensorRule]] = &[&STATE, &qwen3_next::SHARED];
