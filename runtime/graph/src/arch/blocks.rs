//! Building blocks shared by several families.

use super::{ModelConfig, TensorRule, TensorTransform};
use crate::{ActivationFunction, Attention, AttentionMask, Builder, LinformerProjection, NormKind, ValueId};

/// A rule for a tensor that is imported unchanged: our name, and the source's.
macro_rules! whole {
    ($name:expr, $source:expr $(,)?) => {
        $crate::arch::TensorRule::new(concat!($name, " = ", $source), $crate::arch::TensorTransform::Whole)
    };
}

/// A rule for a tensor that needs a transform.
macro_rules! taken {
    ($name:expr, $source:expr, $take:expr $(,)?) => {
        $crate::arch::TensorRule::new(concat!($name, " = ", $source), $take)
    };
}

pub(super) use {taken, whole};

/// The tensor map of Llama and its many descendants.
pub(super) const LLAMA_RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    whole!("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    whole!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole!("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    whole!("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole!("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    whole!("output_norm", "model.norm"),
    whole!("output", "lm_head"),
];

/// llama.cpp permutes the query and key rows of the families it treats as Llama.
pub(super) const LLAMA_GGUF_RULES: &[TensorRule] = &[
    taken!("blk.{}.attn_q", "blk.{}.attn_q", TensorTransform::RotatedPairs),
    taken!("blk.{}.attn_k", "blk.{}.attn_k", TensorTransform::RotatedPairs),
];

/// Returns the name of a tensor in a layer.
pub(super) fn block(layer: usize, name: &str) -> String {
    format!("blk.{layer}.{name}")
}

/// Mean over the sequence, for each token: attention with uniform weights.
pub(super) fn mean_of_text(b: &mut Builder<'_>, h: &ModelConfig, x: ValueId) -> ValueId {
    let mut attention = attention(h, 0);
    (attention.layer, attention.scale, attention.attention_mask) = (h.layers, 0.0, AttentionMask::Full);
    (attention.kv_heads, attention.heads) = (h.heads, h.heads);
    b.attention(x, x, x, attention)
}

/// Causal attention with the default scale, and the layer's sliding window if it has one.
pub(super) fn attention(model_config: &ModelConfig, layer: usize) -> Attention {
    Attention {
        layer,
        kv_heads: model_config.kv_heads,
        scale: model_config.attention_scale(),
        attention_mask: AttentionMask::Causal(model_config.windows[layer]),
        ..Attention::causal(model_config.heads, model_config.head_size)
    }
}

/// Turns bidirectional attention into Linformer attention if the model has the projection weights.
pub(super) fn mix_positions(b: &mut Builder<'_>, attention: &mut Attention, h: &ModelConfig, layer: usize) {
    let names = ["attn_k_mix.weight", "attn_v_mix.weight"].map(|name| block(layer, name));
    if h.projected_positions == 0 || attention.attention_mask != AttentionMask::Full || !b.has(&names[0]) {
        return;
    }
    let [keys, values] = names.map(|name| b.vector(&name, h.projected_positions * h.encoder_context));
    attention.attention_mask = AttentionMask::Linformer;
    attention.projection = Some(LinformerProjection {
        count: h.projected_positions,
        positions: h.encoder_context,
        keys,
        values,
    });
}

/// Separate linear layers for queries, keys and values of `x`.
pub(super) fn queries_keys_values(
    b: &mut Builder<'_>,
    model_config: &ModelConfig,
    layer: usize,
    x: ValueId,
) -> (ValueId, ValueId, ValueId) {
    if b.has(&block(layer, "attn_qkv.weight")) {
        return fused_queries_keys_values(b, model_config, layer, x);
    }
    let q = b.linear(x, &block(layer, "attn_q"), model_config.query_columns());
    let k = b.linear(x, &block(layer, "attn_k"), model_config.kv_columns());
    let v = b.linear(x, &block(layer, "attn_v"), model_config.kv_columns());
    (q, k, v)
}

/// One linear layer for queries, keys and values.
pub(super) fn fused_queries_keys_values(
    b: &mut Builder<'_>,
    model_config: &ModelConfig,
    layer: usize,
    x: ValueId,
) -> (ValueId, ValueId, ValueId) {
    let (queries, keys) = (model_config.query_columns(), model_config.kv_columns());
    let qkv = b.linear(x, &block(layer, "attn_qkv"), queries + 2 * keys);
    (b.slice(qkv, 0, queries), b.slice(qkv, queries, keys), b.slice(qkv, queries + keys, keys))
}

/// Returns the ALiBi slopes of `heads` heads with the largest exponent `max_bias` (8 in every published model).
pub(super) fn alibi_slopes(heads: usize, max_bias: f64) -> Vec<f32> {
    let power = heads.next_power_of_two();
    let slope = |i: usize, of: usize| libm::pow(2.0, -max_bias * i as f64 / of as f64) as f32;
    if power == heads {
        return (1..=heads).map(|i| slope(i, heads)).collect();
    }
    let floor = power / 2;
    let even = (1..=floor).map(|i| slope(i, floor));
    let odd = (0..heads - floor).map(|i| slope(2 * i + 1, power));
    even.chain(odd).collect()
}

/// The plain MLP: up, activation, down.
pub(super) fn feed_forward(
    b: &mut Builder<'_>,
    model_config: &ModelConfig,
    layer: usize,
    activation: ActivationFunction,
    x: ValueId,
) -> ValueId {
    let up = b.linear(x, &block(layer, "ffn_up"), model_config.feed_forward);
    let up = b.activate(activation, up);
    b.linear(up, &block(layer, "ffn_down"), model_config.width)
}

/// Logits of the output rows of `x` after the final norm, with `output`, or with tied embeddings if the source has no
/// `output`.
pub(super) fn logits(b: &mut Builder<'_>, model_config: &ModelConfig, norm: NormKind, x: ValueId) -> ValueId {
    let wanted = b.select_outputs(x);
    let normed = b.norm_of(norm, wanted, "output_norm", model_config.width, model_config.epsilon);
    let weight = if b.has("output.weight") { "output.weight" } else { "token_embd.weight" };
    b.linear_of(normed, weight, "output.bias", model_config.vocabulary)
}
