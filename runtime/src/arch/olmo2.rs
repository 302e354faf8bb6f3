//! OLMo 2 and 3: norms after each block, QK-norm over all heads; in OLMo 3 most layers have a sliding window, with
//! unscaled RoPE.

use super::blocks::{self, block, whole};
use super::llama::feed_forward;
use super::{ConfigReader, Family, ModelConfig, TensorRule, Topology, model_config, rope_frequencies};
use crate::graph::{ActivationKind, Builder, NormKind, Rope, ValueId};
use crate::{Error, Result};
use serde_json::Value;

pub(super) static FAMILY: Family = Family {
    name: "olmo2",
    hugging_face: &["olmo2", "olmo3"],
    gguf: &["olmo2"],
    hugging_face_rules: RULES,
    gguf_rules: &[
        whole("blk.{}.ffn_post_norm", "blk.{}.post_ffw_norm"),
        whole("blk.{}.attn_post_norm", "blk.{}.post_attention_norm"),
    ],
    hyper: hyper_of,
    form: Topology::Decoder(|config, h, mut b| {
        let activation = model_config::activation(config, ActivationKind::Silu)?;
        let theta = if config.word(&["model_type"])? == Some("olmo3") { 500_000.0 } else { 10_000.0 };
        let full = b.rope_table(rope_frequencies::read_kind(config, h, "full_attention", theta)?);
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

/// Every fourth layer has full attention, unless configured otherwise.
fn hyper_of(config: &ConfigReader) -> Result<ModelConfig> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
    match config.get(PATTERN) {
        Some(Value::Array(list)) => {
            let slides: Option<Vec<bool>> = list.iter().map(Value::as_bool).collect();
            let slides = slides.filter(|slides| slides.len() == hyper.layers).ok_or_else(|| {
                Error::corrupt(format!("config.{PATTERN}"), format!("expected {} booleans", hyper.layers))
            })?;
            hyper.slide(config, |layer| slides[layer])?;
        }
        _ => {
            let period = config.count(&[PATTERN])?.unwrap_or(4);
            hyper.slide(config, |layer| period == 0 || !(layer + 1).is_multiple_of(period))?;
        }
    }
    Ok(hyper)
}

/// The RoPE table of layers with a sliding window.
fn local_rope(config: &ConfigReader, h: &ModelConfig, theta: f64) -> Result<Rope> {
    if config.get("rope_parameters/sliding_attention").is_some() {
        return rope_frequencies::read_kind(config, h, "sliding_attention", theta);
    }
    rope_frequencies::unscaled(
        config,
        h,
        config.number(&["rope_parameters/rope_theta", "rope_theta", "rope.freq_base"])?.unwrap_or(theta),
    )
}

const RULES: &[TensorRule] = &[
    whole("token_embd", "model.embed_tokens"),
    whole("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    whole("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    whole("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole("blk.{}.attn_post_norm", "model.layers.{}.post_attention_layernorm"),
    whole("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    whole("blk.{}.ffn_post_norm", "model.layers.{}.post_feedforward_layernorm"),
    whole("output_norm", "model.norm"),
    whole("output", "lm_head"),
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
