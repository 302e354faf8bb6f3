//! ModernBERT (arXiv:2412.13663): pre-norm, RoPE, gated MLP, most layers with local attention.

use super::blocks::{self, block, whole};
use super::heads::{HeadInput, Heads};
use super::{ConfigReader, Family, ModelConfig, TensorRule, Topology, llama, model_config, rope_frequencies};
use crate::graph::{ActivationKind, AttentionMask, Builder, Graph, NormKind, Rope, ValueId};
use crate::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "modernbert",
    hugging_face: &["modernbert"],
    gguf: &["modern-bert"],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: |config| {
        let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
        // The total window, half of it to either side.
        let window = config.count(&["local_attention", "attention.sliding_window"])?.unwrap_or(128);
        let keys = ["global_attn_every_n_layers", "attention.sliding_window_pattern"];
        let every = config.count(&keys)?.unwrap_or(3).max(1);
        hyper.slide_by(config, Some(window / 2), &|layer| layer % every != 0)?;
        Ok(hyper)
    },
    form: Topology::Encoder(graph),
};

const RULES: &[TensorRule] = &[
    whole("token_embd", "model.embeddings.tok_embeddings"),
    whole("token_embd_norm", "model.embeddings.norm"),
    whole("blk.{}.attn_norm", "model.layers.{}.attn_norm"),
    whole("blk.{}.attn_qkv", "model.layers.{}.attn.Wqkv"),
    whole("blk.{}.attn_output", "model.layers.{}.attn.Wo"),
    whole("blk.{}.ffn_norm", "model.layers.{}.mlp_norm"),
    whole("blk.{}.ffn_up", "model.layers.{}.mlp.Wi"),
    whole("blk.{}.ffn_down", "model.layers.{}.mlp.Wo"),
    whole("output_norm", "model.final_norm"),
    whole("tokens", "head.dense"),
    whole("tokens_norm", "head.norm"),
    whole("output", "decoder"),
    whole("cls.output", "classifier"),
    whole("labels", "classifier"),
    whole("answer", "classifier"),
];

fn graph(config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
    let activation = model_config::activation(config, ActivationKind::Gelu)?;
    let ropes = [
        b.rope_table(rope_of(config, h, "full_attention", "global_rope_theta", 160_000.0)?),
        b.rope_table(local_rope(config, h)?),
    ];
    let x = b.embed("token_embd.weight", h.vocabulary, h.width);
    let mut x = b.layer_norm(x, "token_embd_norm", h.epsilon);
    for layer in 0..h.layers {
        // The first layer's input is already normalized.
        let normed = if layer > 0 { b.layer_norm(x, &block(layer, "attn_norm"), h.epsilon) } else { x };
        let attended = attend(&mut b, h, layer, ropes, normed);
        x = b.add(x, attended);
        let normed = b.layer_norm(x, &block(layer, "ffn_norm"), h.epsilon);
        let fed = llama::feed_forward(&mut b, h, layer, activation, normed);
        x = b.add(x, fed);
    }
    let x = b.norm_of(NormKind::Layer, x, "output_norm", h.width, h.epsilon);
    let token_activation =
        model_config::activation_of(config, &["classifier_activation"], ActivationKind::Gelu)?;
    let base = match config.word(&["classifier_pooling"])? {
        None | Some("cls") => HeadInput::Tokens,
        Some("mean") => HeadInput::MeanTokens,
        Some(other) => {
            let message = format!("classifier pooling '{other}'; cls and mean are supported");
            return Err(Error::unsupported("config.classifier_pooling", message));
        }
    };
    let heads = Heads { class_activation: None, token_activation, embedding: h.width, rest: 0, base };
    heads.finish(config, h, b, x)
}

fn attend(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, ropes: [usize; 2], x: ValueId) -> ValueId {
    let (q, k, v) = blocks::queries_keys_values(b, h, layer, x);
    let rope = ropes[usize::from(h.windows[layer].is_some())];
    let q = b.rope(q, rope, h.head_size);
    let k = b.rope(k, rope, h.head_size);
    let mut attention = blocks::attention(h, layer);
    attention.attention_mask = h.windows[layer].map_or(AttentionMask::Full, AttentionMask::LocalWindow);
    let attended = b.attention(q, k, v, attention);
    b.linear(attended, &block(layer, "attn_output"), h.width)
}

/// The RoPE table of local layers. GGUF stores only its base.
fn local_rope(config: &ConfigReader, h: &ModelConfig) -> Result<Rope> {
    match config.number(&["rope.freq_base_swa"])? {
        Some(theta) => rope_frequencies::unscaled(config, h, theta),
        None => rope_of(config, h, "sliding_attention", "local_rope_theta", 10_000.0),
    }
}

/// The RoPE table of a kind of layers, under the current key or the older one.
fn rope_of(config: &ConfigReader, h: &ModelConfig, kind: &str, key: &str, default: f64) -> Result<Rope> {
    let theta = config.number(&[key])?.unwrap_or(default);
    rope_frequencies::read_kind(config, h, kind, theta)
}
