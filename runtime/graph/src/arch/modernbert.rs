//! ModernBERT (arXiv:2412.13663): pre-norm, RoPE, gated MLP, most layers with local attention.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, GgufWindows, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, RopeKeys, SizeKeys, Tasks, TokenizerDefaults, layer_types,
    sliding_period,
};
use super::heads::{HeadInput, Heads};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, llama, model_config,
    rope_scaling,
};
use crate::{ActivationFunction, AttentionMask, Builder, Graph, NormKind, RopeTable, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

/// The RoPE bases of layers with full attention, and of those with local attention.
const FULL_THETA: f64 = 160_000.0;
const LOCAL_THETA: f64 = 10_000.0;

pub(super) static FAMILY: Family = Family {
    name: "modernbert",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        // The total window, half of it to either side.
        let window = config.count(&["local_attention", "attention.sliding_window"])?.unwrap_or(128);
        let keys = ["global_attn_every_n_layers", "attention.sliding_window_pattern"];
        let every = config.count(&keys)?.unwrap_or(3).max(1);
        model_config.slide_by(config, Some(window / 2), &|layer| layer % every != 0)?;
        Ok(model_config)
    },
    topology: Topology::Encoder(graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "modernbert",
            class: Some("ModernBertModel"),
            defaults: &[
                ("classifier_activation", Word("gelu")),
                ("hidden_activation", Word("gelu")),
                ("local_attention", Count(128)),
                ("norm_eps", Number(1e-5)),
            ],
        }],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys { epsilon: "norm_eps", ..SizeKeys::LAYER_NORM },
            rope: RopeKeys {
                theta: FULL_THETA,
                by_layer_kind: |_| true,
                local_theta: Some(LOCAL_THETA),
                ..RopeKeys::USUAL
            },
            others: hugging_face_keys,
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig {
        architectures: &["modern-bert"],
        rules: &[],
        keys: GgufKeys { windows: GgufWindows::Any, others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults {
        names: &["modern-bert"],
        strip_left: &["[MASK]"],
        ..TokenizerDefaults::NONE
    },
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embeddings.tok_embeddings"),
    whole!("token_embd_norm", "model.embeddings.norm"),
    whole!("blk.{}.attn_norm", "model.layers.{}.attn_norm"),
    whole!("blk.{}.attn_qkv", "model.layers.{}.attn.Wqkv"),
    whole!("blk.{}.attn_output", "model.layers.{}.attn.Wo"),
    whole!("blk.{}.ffn_norm", "model.layers.{}.mlp_norm"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.Wi"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.Wo"),
    whole!("output_norm", "model.final_norm"),
    whole!("tokens", "head.dense"),
    whole!("tokens_norm", "head.norm"),
    whole!("output", "decoder"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("answer", "classifier"),
];

fn graph(config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
    let activation = model_config::activation(config, ActivationFunction::Gelu)?;
    let ropes = [
        b.rope_table(rope_of(config, h, "full_attention", "global_rope_theta", FULL_THETA)?),
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
        model_config::activation_of(config, &["classifier_activation"], ActivationFunction::Gelu)?;
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
fn local_rope(config: &ConfigReader, h: &ModelConfig) -> Result<RopeTable> {
    match config.number(&["rope.freq_base_swa"])? {
        Some(theta) => rope_scaling::unscaled(config, h, theta),
        None => rope_of(config, h, "sliding_attention", "local_rope_theta", LOCAL_THETA),
    }
}

/// The RoPE table of a kind of layers, under the current key or the older one.
fn rope_of(config: &ConfigReader, h: &ModelConfig, kind: &str, key: &str, default: f64) -> Result<RopeTable> {
    let theta = config.number(&[key])?.unwrap_or(default);
    rope_scaling::read_kind(config, h, kind, theta)
}

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let reach = model.model_config.windows.iter().flatten().max().copied().unwrap_or_default();
    let mut keys = Map::new();
    keys.insert("local_attention".to_owned(), json!(2 * reach));
    keys.insert("layer_types".to_owned(), layer_types(model.model_config));
    Ok(keys)
}

fn gguf_keys(model: &ExportedModel<'_>, _: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    let period = sliding_period(&model.model_config.windows, 0);
    Ok(period.map(|period| ("attention.sliding_window_pattern", json!(period))).into_iter().collect())
}
