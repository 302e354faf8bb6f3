//! Shared by encoder–decoder models: tensor names of the two sides, and the assignment of KV cache layers.
//!
//! The KV cache has the encoder's layers first, then the decoder's self-attention, then the decoder's cross-attention.

use super::{ConfigReader, ModelConfig, blocks};
use crate::{Attention, AttentionMask, Builder, ValueId};

/// The shared embedding table.
const SHARED: &str = "token_embd.weight";

/// Returns the name of a tensor in a layer of one side.
pub(super) fn block(side: &str, layer: usize, name: &str) -> String {
    format!("{side}.blk.{layer}.{name}")
}

/// Returns whether only the encoder of such a model is present, as in embedding models.
pub(super) fn reads_alone(config: &ConfigReader, has: &dyn Fn(&str) -> bool) -> bool {
    let named = config.architectures().iter().any(|name| name.ends_with("EncoderModel"));
    named && !has(&format!("{}.weight", block("dec", 0, "attn_q")))
}

/// Token embeddings of one side, from its own table, or else from the shared one or that of the other side.
pub(super) fn embed(b: &mut Builder<'_>, h: &ModelConfig, side: &str) -> ValueId {
    let own = format!("{side}.token_embd.weight");
    let tables = [own.as_str(), SHARED, "enc.token_embd.weight", "dec.token_embd.weight"];
    let table = tables.into_iter().find(|table| b.has(table)).unwrap_or(SHARED);
    b.embed(table, h.vocabulary, h.width)
}

/// Returns the name of the LM head's matrix: its own, or a tied embedding table.
pub(super) fn head(b: &Builder<'_>) -> &'static str {
    let tables = ["output.weight", SHARED, "dec.token_embd.weight", "enc.token_embd.weight"];
    tables.into_iter().find(|table| b.has(table)).unwrap_or(SHARED)
}

/// Bidirectional self-attention of an encoder layer.
pub(super) fn attention_of_encoder(encoder: &ModelConfig, layer: usize) -> Attention {
    Attention { attention_mask: AttentionMask::Full, ..blocks::attention(encoder, layer) }
}

/// Causal self-attention of a decoder layer.
pub(super) fn attention_of_decoder(encoder: &ModelConfig, decoder: &ModelConfig, layer: usize) -> Attention {
    let attention_mask = AttentionMask::Causal(None);
    Attention { layer: encoder.layers + layer, attention_mask, ..blocks::attention(decoder, layer) }
}

/// Cross-attention of a decoder layer.
pub(super) fn cross_attention(encoder: &ModelConfig, decoder: &ModelConfig, layer: usize) -> Attention {
    let place = encoder.layers + decoder.layers + layer;
    Attention {
        layer: place,
        attention_mask: AttentionMask::CrossAttention,
        ..blocks::attention(decoder, layer)
    }
}

/// Stores the cross-attention keys and values of all decoder layers, computed from the encoder output `hidden`.
pub(super) fn store_cross_kv(
    b: &mut Builder<'_>,
    encoder: &ModelConfig,
    decoder: &ModelConfig,
    hidden: ValueId,
    scale: f32,
) {
    for layer in 0..decoder.layers {
        let k = b.linear(hidden, &block("dec", layer, "cross_attn_k"), decoder.kv_columns());
        let v = b.linear(hidden, &block("dec", layer, "cross_attn_v"), decoder.kv_columns());
        b.store_cross_kv(k, v, Attention { scale, ..cross_attention(encoder, decoder, layer) });
    }
}

/// Self-attention over normalized rows, with matrices named by `name`.
pub(super) fn attend(
    b: &mut Builder<'_>,
    h: &ModelConfig,
    name: impl Fn(&str) -> String,
    attention: Attention,
    x: ValueId,
) -> ValueId {
    let q = b.linear(x, &name("attn_q"), h.query_columns());
    let k = b.linear(x, &name("attn_k"), h.kv_columns());
    let v = b.linear(x, &name("attn_v"), h.kv_columns());
    let attended = b.attention(q, k, v, attention);
    b.linear(attended, &name("attn_o"), h.width)
}

/// Cross-attention, likewise.
pub(super) fn attend_memory(
    b: &mut Builder<'_>,
    h: &ModelConfig,
    name: impl Fn(&str) -> String,
    attention: Attention,
    x: ValueId,
) -> ValueId {
    let q = b.linear(x, &name("cross_attn_q"), h.query_columns());
    let attended = b.cross_attention(q, attention);
    b.linear(attended, &name("cross_attn_o"), h.width)
}
