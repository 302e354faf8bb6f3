//! Gemma 3 (text): Gemma 2's blocks, QK-norm instead of softcaps, local layers with a RoPE base of their own.

use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, RopeKeys, Tasks, TokenizerDefaults,
};
use super::gemma2::{self, Gemma};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, Topology, rope_scaling};
use crate::{Attention, RopeTable};
use siskin_format::Result;

/// The RoPE bases of layers with full attention, and of those with a sliding window.
const FULL_THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;

pub(super) static FAMILY: Family = Family {
    name: "gemma3",
    tasks: Tasks::NONE,
    bidirectional_key: Some("use_bidirectional_attention"),
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        let keys = ["_sliding_window_pattern", "sliding_window_pattern", "attention.sliding_window_pattern"];
        let pattern = config.count(&keys)?.unwrap_or(6).max(1);
        model_config.slide(config, |layer| (layer + 1) % pattern != 0)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, mut b| {
        let full = b.rope_table(rope_scaling::read_kind(config, model_config, "full_attention", FULL_THETA)?);
        let local = b.rope_table(local_rope(config, model_config)?);
        let scale = gemma2::attention_scale(config, model_config)?;
        let softcap = config.number(&["attn_logit_softcapping"])?.map(|cap| cap as f32);
        let adjust = |attention: &mut Attention| {
            attention.scale = scale;
            attention.softcap = softcap;
        };
        let rope_of = |layer: usize| if model_config.windows[layer].is_some() { local } else { full };
        Gemma { head_norm: true, rope_of: &rope_of, adjust: &adjust }.graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[
            ModelType {
                name: "gemma3_text",
                class: Some("Gemma3ForCausalLM"),
                defaults: &[
                    ("_sliding_window_pattern", Count(6)),
                    ("head_dim", Count(256)),
                    ("hidden_activation", Word("gelu_pytorch_tanh")),
                    ("hidden_size", Count(2304)),
                    ("intermediate_size", Count(9216)),
                    ("max_position_embeddings", Count(131_072)),
                    ("num_attention_heads", Count(8)),
                    ("num_hidden_layers", Count(26)),
                    ("num_key_value_heads", Count(4)),
                    ("query_pre_attn_scalar", Count(256)),
                    ("rms_norm_eps", Number(1e-6)),
                    ("sliding_window", Count(4096)),
                    ("vocab_size", Count(262_208)),
                ],
            },
            ModelType {
                name: "gemma3",
                class: None,
                defaults: &[
                    ("_sliding_window_pattern", Count(6)),
                    ("head_dim", Count(256)),
                    ("hidden_activation", Word("gelu_pytorch_tanh")),
                    ("hidden_size", Count(2304)),
                    ("intermediate_size", Count(9216)),
                    ("max_position_embeddings", Count(131_072)),
                    ("num_attention_heads", Count(8)),
                    ("num_hidden_layers", Count(26)),
                    ("num_key_value_heads", Count(4)),
                    ("query_pre_attn_scalar", Count(256)),
                    ("rms_norm_eps", Number(1e-6)),
                    ("sliding_window", Count(4096)),
                    ("vocab_size", Count(262_208)),
                ],
            },
        ],
        prefix: "model",
        rules: &[gemma2::RULES],
        keys: HuggingFaceKeys {
            rope: RopeKeys {
                theta: FULL_THETA,
                local: "rope_local_base_freq",
                local_theta: Some(LOCAL_THETA),
                ..RopeKeys::USUAL
            },
            ..gemma2::KEYS
        },
    },
    gguf: GgufConfig {
        architectures: &["gemma3", "gemma-embedding"],
        rules: gemma2::DESCRIPTOR.gguf.rules,
        keys: GgufKeys { bidirectional: Some("gemma-embedding"), ..gemma2::GGUF_KEYS },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// Local layers have their own RoPE base and no scaling; configurations without `rope_parameters` have a separate key
/// for it.
fn local_rope(config: &ConfigReader, model_config: &ModelConfig) -> Result<RopeTable> {
    if config.get("rope_parameters/sliding_attention").is_some() {
        return rope_scaling::read_kind(config, model_config, "sliding_attention", LOCAL_THETA);
    }
    let theta = config.number(&["rope_local_base_freq", "rope.freq_base_swa"])?.unwrap_or(LOCAL_THETA);
    rope_scaling::unscaled(config, model_config, theta)
}
