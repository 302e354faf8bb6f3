//! OLMo 2 and 3: norms after each block, QK-norm over all heads; in OLMo 3 most layers have a sliding window, with
//! unscaled RoPE.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, GgufWindows, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, RopeKeys, Tasks, TokenizerDefaults, layer_types, sliding_period,
};
use super::llama::feed_forward;
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, model_config, rope_scaling,
};
use crate::{ActivationFunction, Builder, NormKind, RopeTable, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "olmo2",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: read_model_config,
    topology: Topology::Decoder(|config, h, mut b| {
        let activation = model_config::activation(config, ActivationFunction::Silu)?;
        let theta = if config.word(&["model_type"])? == Some("olmo3") { 500_000.0 } else { 10_000.0 };
        let full = b.rope_table(rope_scaling::read_kind(config, h, "full_attention", theta)?);
        let slides = h.windows.iter().any(Option::is_some);
        let local = if slides { b.rope_table(local_rope(config, h, theta)?) } else { full };
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        for layer in 0..h.layers {
            let rope = if h.windows[layer].is_some() { local } else { full };
            let attended = attend(&mut b, h, layer, rope, x);
            let attended = b.rms_norm(attended, &block(layer, "attn_post_norm"), h.epsilon);
            x = b.add(x, attended);
            let fed = feed_forward(&mut b, h, layer, activation, x);
            let fed = b.rms_norm(fed, &block(layer, "ffn_post_norm"), h.epsilon);
            x = b.add(x, fed);
        }
        let logits = blocks::logits(&mut b, h, NormKind::Rms, x);
        Ok(b.finish(logits))
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[
            ModelType {
                name: "olmo2",
                class: Some("Olmo2ForCausalLM"),
                defaults: &[("hidden_act", Word("silu")), ("rms_norm_eps", Number(1e-5))],
            },
            ModelType {
                name: "olmo3",
                class: Some("Olmo3ForCausalLM"),
                defaults: &[
                    ("hidden_act", Word("silu")),
                    ("rms_norm_eps", Number(1e-5)),
                    ("sliding_window", Count(4096)),
                ],
            },
        ],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            rope: RopeKeys { by_layer_kind: is_olmo3, ..RopeKeys::USUAL },
            variant: |model_config, _| is_olmo3(model_config).then_some("olmo3"),
            others: hugging_face_keys,
            ..HuggingFaceKeys::LLAMA_WITH_BIASES
        },
    },
    gguf: GgufConfig {
        architectures: &["olmo2"],
        rules: &[&[
            whole!("blk.{}.ffn_post_norm", "blk.{}.post_ffw_norm"),
            whole!("blk.{}.attn_post_norm", "blk.{}.post_attention_norm"),
        ]],
        keys: GgufKeys {
            windows: GgufWindows::Any,
            requires_output: true,
            others: gguf_keys,
            ..GgufKeys::NONE
        },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// Every fourth layer has full attention, unless configured otherwise.
fn read_model_config(config: &ConfigReader) -> Result<ModelConfig> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
    match config.get(PATTERN) {
        Some(Value::Array(list)) => {
            let slides: Option<Vec<bool>> = list.iter().map(Value::as_bool).collect();
            let slides = slides.filter(|slides| slides.len() == model_config.layers).ok_or_else(|| {
                Error::corrupt(
                    format!("config.{PATTERN}"),
                    format!("expected {} booleans", model_config.layers),
                )
            })?;
            model_config.slide(config, |layer| slides[layer])?;
        }
        _ => {
            let period = config.count(&[PATTERN])?.unwrap_or(4);
            model_config.slide(config, |layer| period == 0 || !(layer + 1).is_multiple_of(period))?;
        }
    }
    Ok(model_config)
}

/// The RoPE table of layers with a sliding window.
fn local_rope(config: &ConfigReader, h: &ModelConfig, theta: f64) -> Result<RopeTable> {
    if config.get("rope_parameters/sliding_attention").is_some() {
        return rope_scaling::read_kind(config, h, "sliding_attention", theta);
    }
    rope_scaling::unscaled(
        config,
        h,
        config.number(&["rope_parameters/rope_theta", "rope_theta", "rope.freq_base"])?.unwrap_or(theta),
    )
}

const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    whole!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole!("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    whole!("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole!("blk.{}.attn_post_norm", "model.layers.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    whole!("blk.{}.ffn_post_norm", "model.layers.{}.post_feedforward_layernorm"),
    whole!("output_norm", "model.norm"),
    whole!("output", "lm_head"),
];

fn attend(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, rope: usize, x: ValueId) -> ValueId {
    let (q, k, v) = blocks::queries_keys_values(b, h, layer, x);
    let q = b.rms_norm(q, &block(layer, "attn_q_norm"), h.epsilon);
    let k = b.rms_norm(k, &block(layer, "attn_k_norm"), h.epsilon);
    let q = b.rope(q, rope, h.head_size);
    let k = b.rope(k, rope, h.head_size);
    let attended = b.attention(q, k, v, blocks::attention(h, layer));
    b.linear(attended, &block(layer, "attn_output"), h.width)
}

/// OLMo 3 is OLMo 2 with sliding windows.
fn is_olmo3(model_config: &ModelConfig) -> bool {
    model_config.windows.iter().any(Option::is_some)
}

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let mut keys = Map::new();
    if is_olmo3(model.model_config) {
        keys.insert("layer_types".to_owned(), layer_types(model.model_config));
    }
    Ok(keys)
}

fn gguf_keys(model: &ExportedModel<'_>, notes: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    /// The period that llama.cpp assumes.
    const PERIOD: usize = 4;
    if !is_olmo3(model.model_config) {
        return Ok(Vec::new());
    }
    let windows = &model.model_config.windows;
    let period = sliding_period(windows, 1);
    if period != Some(PERIOD) {
        notes.push(format!("llama.cpp applies the sliding window to every layer but each {PERIOD}th"));
    }
    let pattern = match period {
        Some(period) => json!(period),
        None => windows.iter().map(Option::is_some).collect(),
    };
    Ok(vec![("attention.sliding_window_pattern", pattern)])
}
