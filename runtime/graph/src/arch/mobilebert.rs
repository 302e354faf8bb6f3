//! MobileBERT (arXiv:2004.02984): bottleneck layers with several stacked MLPs, between wide hidden states; embeddings
//! combine three neighboring tokens.

use super::blocks::{self, block, taken, whole};
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::heads::{self, HeadInput, Heads};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, bert,
    model_config,
};
use crate::{ActivationFunction, AttentionMask, Builder, Graph, OutputHead, ValueId};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "mobilebert",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = bert::read_model_config(config, 0)?;
        model_config.epsilon = config.number(&["layer_norm_eps"])?.unwrap_or(1e-12) as f32;
        model_config.head_size = narrow(config, &model_config)? / model_config.heads;
        if model_config.head_size == 0 {
            return Err(Error::corrupt("config.intra_bottleneck_size", "smaller than the number of heads"));
        }
        Ok(model_config)
    },
    topology: Topology::Encoder(|config, h, b| Shape::read(config, h)?.graph(config, h, b)),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "mobilebert",
            class: None,
            defaults: &[
                ("classifier_activation", Flag(true)),
                ("hidden_act", Word("relu")),
                ("intra_bottleneck_size", Count(128)),
                ("key_query_shared_bottleneck", Flag(true)),
                ("layer_norm_eps", Number(1e-12)),
                ("num_feedforward_networks", Count(4)),
                ("trigram_input", Flag(true)),
                ("type_vocab_size", Count(2)),
                ("use_bottleneck", Flag(true)),
                ("use_bottleneck_attention", Flag(false)),
            ],
        }],
        prefix: "mobilebert",
        rules: &[RULES],
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "mobilebert.embeddings.word_embeddings"),
    whole!("embd_projection", "mobilebert.embeddings.embedding_transformation"),
    whole!("position_embd", "mobilebert.embeddings.position_embeddings"),
    whole!("token_types", "mobilebert.embeddings.token_type_embeddings"),
    whole!("token_embd_norm", "mobilebert.embeddings.LayerNorm"),
    whole!("blk.{}.narrow", "mobilebert.encoder.layer.{}.bottleneck.input.dense"),
    whole!("blk.{}.narrow_norm", "mobilebert.encoder.layer.{}.bottleneck.input.LayerNorm"),
    whole!("blk.{}.attn_narrow", "mobilebert.encoder.layer.{}.bottleneck.attention.dense"),
    whole!("blk.{}.attn_narrow_norm", "mobilebert.encoder.layer.{}.bottleneck.attention.LayerNorm"),
    whole!("blk.{}.attn_q", "mobilebert.encoder.layer.{}.attention.self.query"),
    whole!("blk.{}.attn_k", "mobilebert.encoder.layer.{}.attention.self.key"),
    whole!("blk.{}.attn_v", "mobilebert.encoder.layer.{}.attention.self.value"),
    whole!("blk.{}.attn_output", "mobilebert.encoder.layer.{}.attention.output.dense"),
    whole!("blk.{}.attn_output_norm", "mobilebert.encoder.layer.{}.attention.output.LayerNorm"),
    whole!("blk.{}.ffn.0.ffn_up", "mobilebert.encoder.layer.{}.ffn.0.intermediate.dense"),
    whole!("blk.{}.ffn.0.ffn_down", "mobilebert.encoder.layer.{}.ffn.0.output.dense"),
    whole!("blk.{}.ffn.0.ffn_norm", "mobilebert.encoder.layer.{}.ffn.0.output.LayerNorm"),
    whole!("blk.{}.ffn.1.ffn_up", "mobilebert.encoder.layer.{}.ffn.1.intermediate.dense"),
    whole!("blk.{}.ffn.1.ffn_down", "mobilebert.encoder.layer.{}.ffn.1.output.dense"),
    whole!("blk.{}.ffn.1.ffn_norm", "mobilebert.encoder.layer.{}.ffn.1.output.LayerNorm"),
    whole!("blk.{}.ffn.2.ffn_up", "mobilebert.encoder.layer.{}.ffn.2.intermediate.dense"),
    whole!("blk.{}.ffn.2.ffn_down", "mobilebert.encoder.layer.{}.ffn.2.output.dense"),
    whole!("blk.{}.ffn.2.ffn_norm", "mobilebert.encoder.layer.{}.ffn.2.output.LayerNorm"),
    whole!("blk.{}.ffn_up", "mobilebert.encoder.layer.{}.intermediate.dense"),
    whole!("blk.{}.ffn_down", "mobilebert.encoder.layer.{}.output.dense"),
    whole!("blk.{}.ffn_norm", "mobilebert.encoder.layer.{}.output.LayerNorm"),
    whole!("blk.{}.wide", "mobilebert.encoder.layer.{}.output.bottleneck.dense"),
    whole!("blk.{}.wide_norm", "mobilebert.encoder.layer.{}.output.bottleneck.LayerNorm"),
    whole!("cls", "mobilebert.pooler.dense"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("answer", "qa_outputs"),
    whole!("tokens", "cls.predictions.transform.dense"),
    whole!("tokens_norm", "cls.predictions.transform.LayerNorm"),
    whole!("output", "cls.predictions.decoder"),
    taken!("output_rest", "cls.predictions.dense", TensorTransform::Transposed),
    whole!("output_bias", "cls.predictions.bias"),
];

/// The maximum number of MLPs per layer that [`RULES`] covers, the last one included.
const MAX_PARTS: usize = 4;
/// Epsilon of norms that have no configuration key for it.
const FIXED_EPSILON: f32 = 1e-5;

/// Returns the hidden size inside a layer.
fn narrow(config: &ConfigReader, h: &ModelConfig) -> Result<usize> {
    if !config.flag(&["use_bottleneck"])?.unwrap_or(true) {
        return Ok(h.width);
    }
    let columns = config.count(&["intra_bottleneck_size", "true_hidden_size"])?.unwrap_or(128);
    match columns {
        1..=1_048_576 => Ok(columns),
        _ => Err(Error::corrupt("config.intra_bottleneck_size", format!("{columns} is out of range"))),
    }
}

/// The variants of MobileBERT.
struct Shape {
    embedding: usize,
    /// Whether a token's embedding is concatenated with those of its neighbors (trigrams).
    trigrams: bool,
    /// Whether layers are narrower than the hidden states between them.
    bottleneck: bool,
    /// Whether queries, keys and values all come from the bottleneck that also feeds the residual.
    narrow_attention: bool,
    /// Whether queries and keys come from a shared bottleneck of their own.
    narrow_keys: bool,
    narrow: usize,
    parts: usize,
    /// Whether norms are only a scale and a bias (NoNorm).
    plain: bool,
    activation: ActivationFunction,
}

impl Shape {
    fn read(config: &ConfigReader, h: &ModelConfig) -> Result<Self> {
        let flag = |key: &str, default: bool| Ok::<_, Error>(config.flag(&[key])?.unwrap_or(default));
        let parts = config.count(&["num_feedforward_networks"])?.unwrap_or(4);
        if !(1..=MAX_PARTS).contains(&parts) {
            let message = format!("{parts} MLPs per layer; expected 1 to {MAX_PARTS}");
            return Err(Error::unsupported("config.num_feedforward_networks", message));
        }
        let plain = match config.word(&["normalization_type"])? {
            None | Some("no_norm") => true,
            Some("layer_norm") => false,
            Some(other) => {
                return Err(Error::unsupported("config.normalization_type", format!("norm '{other}'")));
            }
        };
        Ok(Self {
            embedding: config.count(&["embedding_size"])?.unwrap_or(128),
            trigrams: flag("trigram_input", true)?,
            bottleneck: flag("use_bottleneck", true)?,
            narrow_attention: flag("use_bottleneck_attention", false)?,
            narrow_keys: flag("key_query_shared_bottleneck", true)?,
            narrow: narrow(config, h)?,
            parts,
            plain,
            activation: model_config::activation(config, ActivationFunction::Relu)?,
        })
    }

    fn graph(&self, config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
        let mut x = self.embeddings(h, &mut b);
        for layer in 0..h.layers {
            x = self.layer(h, &mut b, layer, x);
        }
        let pooled = config.flag(&["classifier_activation"])?.unwrap_or(true);
        let architectures = config.architectures();
        let classes = architectures.iter().any(|name| name.ends_with("ForSequenceClassification"));
        if !pooled && classes && b.has("cls.output.weight") {
            let hidden = b.select_outputs(x);
            let scores = b.linear(hidden, "cls.output", heads::classes(config)?);
            return Ok(b.finish_with(OutputHead::Class, hidden, scores));
        }
        let heads = Heads {
            class_activation: None,
            token_activation: self.activation,
            embedding: self.embedding,
            rest: h.width.saturating_sub(self.embedding),
            base: HeadInput::Hidden,
        };
        heads.finish(config, h, b, x)
    }

    fn norm(&self, b: &mut Builder<'_>, x: ValueId, name: &str, epsilon: f32) -> ValueId {
        if self.plain { b.affine(x, name) } else { b.layer_norm(x, name, epsilon) }
    }

    fn embeddings(&self, h: &ModelConfig, b: &mut Builder<'_>) -> ValueId {
        let mut x = b.embed("token_embd.weight", h.vocabulary, self.embedding);
        if self.trigrams {
            x = b.im2col(x, &[1, 0, -1], 1);
        }
        if self.trigrams || self.embedding != h.width {
            x = b.linear(x, "embd_projection", h.width);
        }
        let positions = b.embed_position("position_embd.weight", h.context, h.width, 0);
        x = b.add(x, positions);
        if h.token_types > 0 && b.has("token_types.weight") {
            let token_types = b.embed_token_type("token_types.weight", h.token_types, h.width);
            x = b.add(x, token_types);
        }
        self.norm(b, x, "token_embd_norm", FIXED_EPSILON)
    }

    fn layer(&self, h: &ModelConfig, b: &mut Builder<'_>, layer: usize, x: ValueId) -> ValueId {
        let ours = |name: &str| block(layer, name);
        let mut narrowed = x;
        let (mut keys, mut values) = (x, x);
        if self.bottleneck {
            let mut bottleneck = |name: &str| {
                let narrow = b.linear(x, &ours(name), self.narrow);
                self.norm(b, narrow, &ours(&format!("{name}_norm")), h.epsilon)
            };
            narrowed = bottleneck("narrow");
            if self.narrow_attention {
                (keys, values) = (narrowed, narrowed);
            } else if self.narrow_keys {
                keys = bottleneck("attn_narrow");
            }
        }
        let q = b.linear(keys, &ours("attn_q"), h.query_columns());
        let k = b.linear(keys, &ours("attn_k"), h.query_columns());
        let v = b.linear(values, &ours("attn_v"), h.query_columns());
        let mut attention = blocks::attention(h, layer);
        attention.attention_mask = AttentionMask::Full;
        let attended = b.attention(q, k, v, attention);
        let attended = b.linear(attended, &ours("attn_output"), self.narrow);
        let sum = b.add(attended, narrowed);
        let mut inner = self.norm(b, sum, &ours("attn_output_norm"), h.epsilon);
        for part in 0..self.parts - 1 {
            inner = self.feed(h, b, &ours(&format!("ffn.{part}.")), h.epsilon, inner);
        }
        inner = self.feed(h, b, &ours(""), FIXED_EPSILON, inner);
        if !self.bottleneck {
            return inner;
        }
        let wide = b.linear(inner, &ours("wide"), h.width);
        let sum = b.add(wide, x);
        self.norm(b, sum, &ours("wide_norm"), h.epsilon)
    }

    /// An MLP, residual and norm.
    fn feed(&self, h: &ModelConfig, b: &mut Builder<'_>, prefix: &str, epsilon: f32, x: ValueId) -> ValueId {
        let up = b.linear(x, &format!("{prefix}ffn_up"), h.feed_forward);
        let up = b.activate(self.activation, up);
        let down = b.linear(up, &format!("{prefix}ffn_down"), self.narrow);
        let sum = b.add(down, x);
        self.norm(b, sum, &format!("{prefix}ffn_norm"), epsilon)
    }
}
