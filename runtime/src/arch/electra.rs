//! ELECTRA: BERT whose embeddings may be narrower.

use super::bert::{self, Shape};
use super::blocks::whole;
use super::{Family, Form, Rule};
use crate::graph::ActivationKind;

pub(super) static FAMILY: Family = Family {
    name: "electra",
    hugging_face: &["electra"],
    gguf: &[],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: |config| bert::hyper_of(config, 0),
    form: Form::Encoder(|config, h, b| {
        let shape = Shape {
            embedding: Some(config.count(&["embedding_size"])?.unwrap_or(128)),
            class_activation: Some(ActivationKind::Gelu),
            ..Shape::default()
        };
        shape.graph(config, h, b)
    }),
};

const RULES: &[Rule] = &[
    whole("token_embd", "electra.embeddings.word_embeddings"),
    whole("position_embd", "electra.embeddings.position_embeddings"),
    whole("token_types", "electra.embeddings.token_type_embeddings"),
    whole("token_embd_norm", "electra.embeddings.LayerNorm"),
    whole("embd_projection", "electra.embeddings_project"),
    whole("blk.{}.attn_q", "electra.encoder.layer.{}.attention.self.query"),
    whole("blk.{}.attn_k", "electra.encoder.layer.{}.attention.self.key"),
    whole("blk.{}.attn_v", "electra.encoder.layer.{}.attention.self.value"),
    whole("blk.{}.attn_output", "electra.encoder.layer.{}.attention.output.dense"),
    whole("blk.{}.attn_output_norm", "electra.encoder.layer.{}.attention.output.LayerNorm"),
    whole("blk.{}.ffn_up", "electra.encoder.layer.{}.intermediate.dense"),
    whole("blk.{}.ffn_down", "electra.encoder.layer.{}.output.dense"),
    whole("blk.{}.layer_output_norm", "electra.encoder.layer.{}.output.LayerNorm"),
    whole("cls", "classifier.dense"),
    whole("cls.output", "classifier.out_proj"),
    whole("labels", "classifier"),
    whole("answer", "qa_outputs"),
    whole("tokens", "generator_predictions.dense"),
    whole("tokens_norm", "generator_predictions.LayerNorm"),
    whole("output", "generator_lm_head"),
];
