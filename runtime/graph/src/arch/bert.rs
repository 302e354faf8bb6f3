//! BERT and the encoders that share its graph: post-norm, bidirectional attention.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, Ctranslate2Source, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig,
    HuggingFaceKeys, Initialization, ModelType, OnnxNames, Tasks, TokenizerDefaults, object,
};
use super::heads::{HeadInput, Heads};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, model_config};
use crate::{ActivationFunction, AttentionMask, Builder, Graph, RelativePositionBias, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "bert",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| read_model_config(config, 0),
    topology: Topology::Encoder(|config, h, b| BertVariant::default().graph(config, h, b)),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "bert",
            class: Some("BertModel"),
            defaults: &[
                ("hidden_act", Word("gelu")),
                ("layer_norm_eps", Number(1e-12)),
                ("type_vocab_size", Count(2)),
            ],
        }],
        prefix: "bert",
        rules: &[RULES],
        keys: HuggingFaceKeys { others: hugging_face_keys, ..HuggingFaceKeys::BERT },
    },
    gguf: GgufConfig { architectures: &["bert"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config {
        specification: "TransformerEncoderSpec",
        recognizes: |_| true,
        scales_queries: true,
        config: ctranslate2_config,
    },
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization {
        tensors: &[
            "token_embd.weight",
            "position_embd.weight",
            "token_types.weight",
            "token_embd_norm",
            "blk.{}.attn_q",
            "blk.{}.attn_k",
            "blk.{}.attn_v",
            "blk.{}.attn_output",
            "blk.{}.attn_output_norm",
            "blk.{}.ffn_up",
            "blk.{}.ffn_down",
            "blk.{}.layer_output_norm",
        ],
        ..Initialization::NONE
    },
};

/// The tensor map of BERT's embeddings and layers under a prefix, plus a family's own rules.
macro_rules! trunk {
    ($prefix:literal; $($own:expr),* $(,)?) => {
        &[
            whole!("token_embd", concat!($prefix, ".embeddings.word_embeddings")),
            whole!("position_embd", concat!($prefix, ".embeddings.position_embeddings")),
            whole!("token_types", concat!($prefix, ".embeddings.token_type_embeddings")),
            whole!("token_embd_norm", concat!($prefix, ".embeddings.LayerNorm")),
            whole!("blk.{}.attn_q", concat!($prefix, ".encoder.layer.{}.attention.self.query")),
            whole!("blk.{}.attn_k", concat!($prefix, ".encoder.layer.{}.attention.self.key")),
            whole!("blk.{}.attn_v", concat!($prefix, ".encoder.layer.{}.attention.self.value")),
            whole!("blk.{}.attn_k_mix", concat!($prefix, ".encoder.layer.{}.attention.self.key_positions")),
            whole!("blk.{}.attn_v_mix", concat!($prefix, ".encoder.layer.{}.attention.self.value_positions")),
            whole!("blk.{}.attn_output", concat!($prefix, ".encoder.layer.{}.attention.output.dense")),
            whole!("blk.{}.attn_output_norm", concat!($prefix, ".encoder.layer.{}.attention.output.LayerNorm")),
            whole!("blk.{}.ffn_up", concat!($prefix, ".encoder.layer.{}.intermediate.dense")),
            whole!("blk.{}.ffn_down", concat!($prefix, ".encoder.layer.{}.output.dense")),
            whole!("blk.{}.layer_output_norm", concat!($prefix, ".encoder.layer.{}.output.LayerNorm")),
            $($own),*
        ]
    };
}
pub(super) use trunk;

const RULES: &[TensorRule] = trunk! {
    "bert";
    whole!("cls", "bert.pooler.dense"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("exit.{}.cls", "bert.encoder.highway.{}.pooler.dense"),
    whole!("exit.{}.output", "bert.encoder.highway.{}.classifier"),
    whole!("exit.{}.shared_output", "classifiers.{}"),
    whole!("answer", "qa_outputs"),
    whole!("tokens", "cls.predictions.transform.dense"),
    whole!("tokens_norm", "cls.predictions.transform.LayerNorm"),
    whole!("output", "cls.predictions.decoder"),
    whole!("output_bias", "cls.predictions.bias"),
};

/// Reads the hyperparameters of an encoder whose positions start at row `first` of the position table.
pub(super) fn read_model_config(config: &ConfigReader, first: usize) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
    model_config.context = model_config.context.saturating_sub(first).max(1);
    model_config.encoder_context = model_config.context;
    if let Some(count) = config.count(&["position_projections"])? {
        // The projection matrices of a layer have one column per position of the longest sequence.
        let numbers = count
            .checked_mul(model_config.encoder_context)
            .filter(|&numbers| count > 0 && numbers <= 1 << 26);
        numbers.ok_or_else(|| Error::corrupt("config.position_projections", format!("{count}")))?;
        model_config.projected_positions = count;
    }
    reject_other_graphs(config)?;
    model_config.token_types = config.count(&["type_vocab_size", "token_type_count"])?.unwrap_or(0);
    Ok(model_config)
}

/// Rejects options that the reference implementation computes differently, or did when such models were trained.
fn reject_other_graphs(config: &ConfigReader) -> Result<()> {
    if config.flag(&["is_decoder"])? == Some(true) {
        let message = "BERT as a decoder, with causal attention, is not supported";
        return Err(Error::unsupported("config.is_decoder", message));
    }
    match config.word(&["position_embedding_type"])? {
        None | Some("absolute") => Ok(()),
        Some(other) => {
            let message = format!("position embeddings of type '{other}'; only absolute ones are supported");
            Err(Error::unsupported("config.position_embedding_type", message))
        }
    }
}

/// The variants of post-norm encoders.
#[derive(Default)]
pub(super) struct BertVariant {
    /// The row of the position table for position 0.
    pub first_position: usize,
    /// Columns of the embeddings, if different from the hidden size.
    pub embedding: Option<usize>,
    /// The number of consecutive layers that share weights; 0: none.
    pub shared: usize,
    /// Relative position bias of all layers.
    pub bias: Option<RelativePositionBias>,
    /// The default activation of the feed-forward blocks; `None`: GELU.
    pub activation: Option<ActivationFunction>,
    /// The activation of the masked-LM head; `None`: that of the feed-forward blocks.
    pub token_activation: Option<ActivationFunction>,
    /// The activation between the two linear layers of the classification head; `None`: tanh.
    pub class_activation: Option<ActivationFunction>,
    /// The attention mask; `None`: bidirectional.
    pub attention_mask: Option<AttentionMask>,
    /// A replacement for a layer's attention.
    pub gather: Option<Gather>,
}

/// Builds a layer's attention from its index and input.
pub(super) type Gather = fn(&ModelConfig, &mut Builder<'_>, usize, ValueId) -> ValueId;

impl BertVariant {
    pub(super) fn graph(&self, config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
        let activation =
            model_config::activation(config, self.activation.unwrap_or(ActivationFunction::Gelu))?;
        let mut x = self.embeddings(h, &mut b);
        let mut states = Vec::with_capacity(h.layers);
        for layer in 0..h.layers {
            x = self.layer(h, &mut b, layer, activation, x);
            states.push(x);
        }
        let embedding = self.embedding.unwrap_or(h.width);
        let heads = Heads {
            class_activation: self.class_activation,
            token_activation: self.token_activation.unwrap_or(activation),
            embedding,
            rest: 0,
            base: HeadInput::Hidden,
        };
        heads.exits(config, h, &mut b, &states)?;
        heads.finish(config, h, b, x)
    }

    fn embeddings(&self, h: &ModelConfig, b: &mut Builder<'_>) -> ValueId {
        let width = self.embedding.unwrap_or(h.width);
        let mut x = b.embed("token_embd.weight", h.vocabulary, width);
        if h.token_types > 0 && b.has("token_types.weight") {
            let token_types = b.embed_token_type("token_types.weight", h.token_types, width);
            x = b.add(x, token_types);
        }
        let positions = b.embed_position("position_embd.weight", h.context, width, self.first_position);
        x = b.add(x, positions);
        x = b.layer_norm(x, "token_embd_norm", h.epsilon);
        if width == h.width && !b.has("embd_projection.weight") {
            return x;
        }
        b.linear(x, "embd_projection", h.width)
    }

    fn layer(
        &self,
        h: &ModelConfig,
        b: &mut Builder<'_>,
        layer: usize,
        activation: ActivationFunction,
        x: ValueId,
    ) -> ValueId {
        // With shared weights, only those of a group's first layer exist.
        let weights = layer.checked_div(self.shared).unwrap_or(layer);
        let attended = match self.gather {
            Some(gather) => gather(h, b, layer, x),
            None => {
                let (q, k, v) = blocks::queries_keys_values(b, h, weights, x);
                let mut attention = blocks::attention(h, layer);
                attention.attention_mask = self.attention_mask.unwrap_or(AttentionMask::Full);
                attention.bias = self.bias;
                blocks::mix_positions(b, &mut attention, h, weights);
                b.attention(q, k, v, attention)
            }
        };
        let attended = b.linear(attended, &block(weights, "attn_output"), h.width);
        let x = b.add(x, attended);
        let x = b.layer_norm(x, &block(weights, "attn_output_norm"), h.epsilon);
        let fed = blocks::feed_forward(b, h, weights, activation, x);
        let x = b.add(x, fed);
        b.layer_norm(x, &block(weights, "layer_output_norm"), h.epsilon)
    }
}

pub(super) fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let mut keys = Map::new();
    keys.insert("type_vocab_size".to_owned(), json!(model.model_config.token_types));
    Ok(keys)
}

fn ctranslate2_config(source: &dyn Ctranslate2Source) -> Result<Map<String, Value>> {
    let (tokens, width) = source.shape("token_embd.weight")?;
    let positions = source.rows("position_embd.weight").map_err(|_| {
        let message = "positions that are not in model.bin are not supported";
        Error::unsupported("encoder/position_encodings", message)
    })?;
    if source.scaled_embeddings(width, &["encoder"])? || source.has("blk.0.ffn_gate.weight") {
        let message = "scaled embeddings and gates are not BERT's; convert the original model";
        return Err(Error::unsupported("encoder", message));
    }
    let token_types = if source.has("token_types.weight") { source.rows("token_types.weight")? } else { 0 };
    Ok(object(json!({
        "hidden_size": width,
        "vocab_size": tokens,
        "num_hidden_layers": source.layers("encoder"),
        "num_attention_heads": source.heads("encoder")?,
        "intermediate_size": source.rows("blk.0.ffn_up.weight")?,
        "max_position_embeddings": positions,
        "type_vocab_size": token_types,
        "layer_norm_eps": source.epsilon().unwrap_or(1e-5),
        "hidden_act": source.activation("encoder", "relu")?,
        "model_type": "bert",
    })))
}
