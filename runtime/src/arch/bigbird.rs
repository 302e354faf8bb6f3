//! BigBird with full attention: BERT with another activation.

use super::bert::{self, Shape};
use super::blocks::whole;
use super::{Config, Family, Form, Rule};
use crate::graph::ActivationKind;
use crate::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "big_bird",
    hugging_face: &["big_bird"],
    gguf: &[],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: |config| bert::hyper_of(config, 0),
    form: Form::Encoder(|config, h, b| {
        check(config)?;
        let shape = Shape {
            activation: Some(ActivationKind::GeluTanh),
            class_activation: Some(hidden_activation(config)?),
            ..Shape::default()
        };
        shape.graph(config, h, b)
    }),
};

const RULES: &[Rule] = &[
    whole("token_embd", "bert.embeddings.word_embeddings"),
    whole("position_embd", "bert.embeddings.position_embeddings"),
    whole("token_types", "bert.embeddings.token_type_embeddings"),
    whole("token_embd_norm", "bert.embeddings.LayerNorm"),
    whole("blk.{}.attn_q", "bert.encoder.layer.{}.attention.self.query"),
    whole("blk.{}.attn_k", "bert.encoder.layer.{}.attention.self.key"),
    whole("blk.{}.attn_v", "bert.encoder.layer.{}.attention.self.value"),
    whole("blk.{}.attn_output", "bert.encoder.layer.{}.attention.output.dense"),
    whole("blk.{}.attn_output_norm", "bert.encoder.layer.{}.attention.output.LayerNorm"),
    whole("blk.{}.ffn_up", "bert.encoder.layer.{}.intermediate.dense"),
    whole("blk.{}.ffn_down", "bert.encoder.layer.{}.output.dense"),
    whole("blk.{}.layer_output_norm", "bert.encoder.layer.{}.output.LayerNorm"),
    whole("cls", "classifier.dense"),
    whole("cls.output", "classifier.out_proj"),
    whole("labels", "classifier"),
    whole("answer", "qa_classifier.qa_outputs"),
    whole("tokens", "cls.predictions.transform.dense"),
    whole("tokens_norm", "cls.predictions.transform.LayerNorm"),
    whole("output", "cls.predictions.decoder"),
    whole("output_bias", "cls.predictions.bias"),
];

fn hidden_activation(config: &Config) -> Result<ActivationKind> {
    super::hyper::activation(config, ActivationKind::GeluTanh)
}

fn check(config: &Config) -> Result<()> {
    if config.flag(&["rescale_embeddings"])? == Some(true) {
        return Err(Error::unsupported("config.rescale_embeddings", "rescaled embeddings"));
    }
    match config.word(&["attention_type"])? {
        Some("original_full") => Ok(()),
        other => {
            let message = format!("attention of type '{}'", other.unwrap_or("block_sparse"));
            Err(Error::unsupported("config.attention_type", message))
        }
    }
}
