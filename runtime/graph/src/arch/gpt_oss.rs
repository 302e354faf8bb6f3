//! GPT-OSS: MoE with clamped gates, a sliding window on every other layer, and a learned attention sink per head.

use super::blocks::{LLAMA_RULES, taken, whole};
use super::descriptor::DefaultValue::{Count, Flag, Number, Object, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, GgufWindows, HuggingFaceConfig, HuggingFaceKeys, Initialization,
    ModelType, OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, experts,
    rope_scaling,
};
use crate::GateLimits;
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "gpt-oss",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: model_config,
    topology: Topology::Decoder(|config, model_config, b| {
        let rope = rope_scaling::read_with(config, model_config, "full_attention", 150_000.0, false)?;
        let shape =
            LlamaVariant { limits: Some(limits(config)?), rope: Some(rope), ..LlamaVariant::default() };
        shape.graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "gpt_oss",
            class: None,
            defaults: &[
                ("head_dim", Count(64)),
                ("hidden_act", Word("silu")),
                ("num_experts_per_tok", Count(4)),
                ("num_key_value_heads", Count(8)),
                ("rms_norm_eps", Number(1e-5)),
                (
                    "rope_parameters",
                    Object(&[
                        ("beta_fast", Number(32.0)),
                        ("beta_slow", Number(1.0)),
                        ("factor", Number(32.0)),
                        ("original_max_position_embeddings", Count(4096)),
                        ("rope_theta", Number(150_000.0)),
                        ("rope_type", Word("yarn")),
                        ("truncate", Flag(false)),
                    ]),
                ),
                ("sliding_window", Count(128)),
                ("swiglu_alpha", Number(1.702)),
                ("swiglu_limit", Number(7.0)),
            ],
        }],
        prefix: "model",
        rules: RULES,
        keys: HuggingFaceKeys::LLAMA,
    },
    gguf: GgufConfig {
        architectures: &["gpt-oss"],
        rules: GGUF_RULES,
        keys: GgufKeys { windows: GgufWindows::Any, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

fn model_config(config: &ConfigReader) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::read(config, |width| width)?;
    model_config.slide(config, |layer| layer % 2 == 0)?;
    Ok(model_config)
}

fn limits(config: &ConfigReader) -> Result<GateLimits> {
    let limit = config.number(&["swiglu_limit"])?.unwrap_or(7.0) as f32;
    Ok(GateLimits { limit, slope: config.number(&["swiglu_alpha"])?.unwrap_or(1.702) as f32 })
}

const OWN: [TensorRule; 8] = [
    whole!("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"),
    whole!("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"),
    taken!("blk.{}.ffn_gate_exp.{}.weight", "model.layers.{}.mlp.experts.gate_up_proj", across(2, 0)),
    taken!("blk.{}.ffn_up_exp.{}.weight", "model.layers.{}.mlp.experts.gate_up_proj", across(2, 1)),
    taken!("blk.{}.ffn_down_exp.{}.weight", "model.layers.{}.mlp.experts.down_proj", across(1, 0)),
    taken!("blk.{}.ffn_gate_exp.{}.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", across(2, 0)),
    taken!("blk.{}.ffn_up_exp.{}.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", across(2, 1)),
    taken!("blk.{}.ffn_down_exp.{}.bias", "model.layers.{}.mlp.experts.down_proj_bias", across(1, 0)),
];

const RULES: &[&[TensorRule]] = &[&OWN, LLAMA_RULES];

const GGUF_RULES: &[&[TensorRule]] =
    &[&[whole!("blk.{}.ffn_norm", "blk.{}.post_attention_norm")], &experts::STACKED];

const fn across(of: u16, part: u16) -> TensorTransform {
    TensorTransform::StackedAcross { of, part }
}
