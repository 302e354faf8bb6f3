//! What models with an encoder and a decoder share: the names of their sides, and which layers of the cache are whose.
//!
//! The encoder's layers come first, then the decoder's, then what the decoder's layers see of the encoder.

use super::{Config, ModelConfig, blocks};
use crate::graph::{Attention, AttentionMask, Builder, ValueId};

/// The table of both sides.
const SHARED: &str = "token_embd.weight";

/// The name of a tensor in a layer of one side.
pub(super) fn block(side: &str, layer: usize, name: &str) -> String {
    format!("{side}.blk.{layer}.{name}")
}

/// Whether a model is the encoder of such a model alone: it is made for vectors of texts.
pub(super) fn reads_alone(config: &Config, has: &dyn Fn(&str) -> bool) -> bool {
    let named = config.architectures().iter().any(|name| name.ends_with("EncoderModel"));
    named && !has(&format!("{}.weight", block("dec", 0, "attn_q")))
}

/// The tokens of one side, by a table of its own where it has one, or by that of the other side where it is the only one.
pub(super) fn embed(b: &mut Builder<'_>, h: &ModelConfig, side: &str) -> ValueId {
    let own = format!("{side}.token_embd.weight");
    let tables = [own.as_str(), SHARED, "enc.token_embd.weight", "dec.token_embd.weight"];
    let table = tables.into_iter().find(|table| b.has(table)).unwrap_or(SHARED);
    b.embed(table, h.vocabulary, h.width)
}

/// The matrix of the scores: one of its own, or a table of tokens.
pub(super) fn head(b: &Builder<'_>) -> &'static str {
    let tables = ["output.weight", SHARED, "dec.token_embd.weight", "enc.token_embd.weight"];
    tables.into_iter().find(|table| b.has(table)).unwrap_or(SHARED)
}

/// Attention of a layer of the encoder.
pub(super) fn attention_of_encoder(encoder: &ModelConfig, layer: usize) -> Attention {
    Attention { attention_mask: AttentionMask::Full, ..blocks::attention(encoder, layer) }
}

/// Attention of a layer of the decoder to what was written before.
pub(super) fn attention_of_decoder(encoder: &ModelConfig, decoder: &ModelConfig, layer: usize) -> Attention {
    let attention_mask = AttentionMask::Causal(None);
    Attention { layer: encoder.layers + layer, attention_mask, ..blocks::attention(decoder, layer) }
}

/// Attention of a layer of the decoder to what the encoder read.
pub(super) fn attention_to_memory(encoder: &ModelConfig, decoder: &ModelConfig, layer: usize) -> Attention {
    let place = encoder.layers + decoder.layers + layer;
    Attention {
        layer: place,
        attention_mask: AttentionMask::CrossAttention,
        ..blocks::attention(decoder, layer)
    }
}

/// Stores the keys and values that the decoder's layers will see of the encoder's rows `hidden`.
pub(super) fn remember(
    b: &mut Builder<'_>,
    encoder: &ModelConfig,
    decoder: &ModelConfig,
    hidden: ValueId,
    scale: f32,
) {
    for layer in 0..decoder.layers {
        let k = b.linear(hidden, &block("dec", layer, "cross_attn_k"), decoder.kv_columns());
        let v = b.linear(hidden, &block("dec", layer, "cross_attn_v"), decoder.kv_columns());
        b.remember(k, v, Attention { scale, ..attention_to_memory(encoder, decoder, layer) });
    }
}

/// Attention over rows that are normed already, by matrices whose names begin with `name`.
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

/// The same over what the encoder read.
pub(super) fn attend_memory(
    b: &mut Builder<'_>,
    h: &ModelConfig,
    name: impl Fn(&str) -> String,
    attention: Attention,
    x: ValueId,
) -> ValueId {
    let q = b.linear(x, &name("cross_attn_q"), h.query_columns());
    let attended = b.attend_memory(q, attention);
    b.linear(attended, &name("cross_attn_o"), h.width)
}
