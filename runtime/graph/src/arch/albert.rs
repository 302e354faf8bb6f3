//! ALBERT (arXiv:1909.11942): BERT with factorized embeddings and cross-layer parameter sharing.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology};
use crate::ActivationFunction;
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "albert",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = bert::read_model_config(config, 0)?;
        model_config.epsilon = config.number(&["layer_norm_eps"])?.unwrap_or(1e-12) as f32;
        Ok(model_config)
    },
    topology: Topology::Encoder(|config, h, b| {
        let shape = BertVariant {
            embedding: Some(config.count(&["embedding_size"])?.unwrap_or(128)),
            shared: shared(config, h)?,
            activation: Some(ActivationFunction::GeluTanh),
            ..BertVariant::default()
        };
        shape.graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "albert",
            class: None,
            defaults: &[
                ("hidden_act", Word("gelu_new")),
                ("inner_group_num", Count(1)),
                ("layer_norm_eps", Number(1e-12)),
                ("num_hidden_groups", Count(1)),
                ("type_vocab_size", Count(2)),
            ],
        }],
        prefix: "albert",
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
    whole!("token_embd", "albert.embeddings.word_embeddings"),
    whole!("position_embd", "albert.embeddings.position_embeddings"),
    whole!("token_types", "albert.embeddings.token_type_embeddings"),
    whole!("token_embd_norm", "albert.embeddings.LayerNorm"),
    whole!("embd_projection", "albert.encoder.embedding_hidden_mapping_in"),
    whole!("blk.{}.attn_q", "albert.encoder.albert_layer_groups.{}.albert_layers.0.attention.query"),
    whole!("blk.{}.attn_k", "albert.encoder.albert_layer_groups.{}.albert_layers.0.attention.key"),
    whole!("blk.{}.attn_v", "albert.encoder.albert_layer_groups.{}.albert_layers.0.attention.value"),
    whole!("blk.{}.attn_output", "albert.encoder.albert_layer_groups.{}.albert_layers.0.attention.dense"),
    whole!(
        "blk.{}.attn_output_norm",
        "albert.encoder.albert_layer_groups.{}.albert_layers.0.attention.LayerNorm",
    ),
    whole!("blk.{}.ffn_up", "albert.encoder.albert_layer_groups.{}.albert_layers.0.ffn"),
    whole!("blk.{}.ffn_down", "albert.encoder.albert_layer_groups.{}.albert_layers.0.ffn_output"),
    whole!(
        "blk.{}.layer_output_norm",
        "albert.encoder.albert_layer_groups.{}.albert_layers.0.full_layer_layer_norm",
    ),
    whole!("exit.{}.shared_output", "classifiers.{}"),
    whole!("cls", "albert.pooler"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("answer", "qa_outputs"),
    whole!("tokens", "predictions.dense"),
    whole!("tokens_norm", "predictions.LayerNorm"),
    whole!("output", "predictions.decoder"),
    whole!("output_bias", "predictions.bias"),
];

/// Returns the number of layers per group of shared weights.
fn shared(config: &ConfigReader, h: &ModelConfig) -> Result<usize> {
    let groups = config.count(&["num_hidden_groups"])?.unwrap_or(1).max(1);
    if config.count(&["inner_group_num"])?.unwrap_or(1) != 1 {
        return Err(Error::unsupported(
            "config.inner_group_num",
            "more than one layer per group is not supported",
        ));
    }
    if !h.layers.is_multiple_of(groups) {
        let message = format!("{groups} groups for {} layers, which is not a multiple", h.layers);
        return Err(Error::unsupported("config.num_hidden_groups", message));
    }
    Ok(h.layers / groups)
}
