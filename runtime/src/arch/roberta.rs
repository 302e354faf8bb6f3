//! RoBERTa and XLM-R: BERT whose positions begin behind that of the padding token.

use super::bert::{self, Shape};
use super::blocks::whole;
use super::{Config, Family, Form, Rule};
use crate::Result;

pub(super) static FAMILY: Family = Family {
    name: "roberta",
    hugging_face: &["roberta", "xlm-roberta", "camembert"],
    gguf: &[],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: |config| bert::hyper_of(config, first_position(config)?),
    form: Form::Encoder(|config, h, b| {
        let first_position = first_position(config)?;
        Shape { first_position, ..Shape::default() }.graph(config, h, b)
    }),
};

const RULES: &[Rule] = &[
    whole("token_embd", "roberta.embeddings.word_embeddings"),
    whole("position_embd", "roberta.embeddings.position_embeddings"),
    whole("token_types", "roberta.embeddings.token_type_embeddings"),
    whole("token_embd_norm", "roberta.embeddings.LayerNorm"),
    whole("blk.{}.attn_q", "roberta.encoder.layer.{}.attention.self.query"),
    whole("blk.{}.attn_k", "roberta.encoder.layer.{}.attention.self.key"),
    whole("blk.{}.attn_v", "roberta.encoder.layer.{}.attention.self.value"),
    whole("blk.{}.attn_output", "roberta.encoder.layer.{}.attention.output.dense"),
    whole("blk.{}.attn_output_norm", "roberta.encoder.layer.{}.attention.output.LayerNorm"),
    whole("blk.{}.ffn_up", "roberta.encoder.layer.{}.intermediate.dense"),
    whole("blk.{}.ffn_down", "roberta.encoder.layer.{}.output.dense"),
    whole("blk.{}.layer_output_norm", "roberta.encoder.layer.{}.output.LayerNorm"),
    whole("cls", "classifier.dense"),
    whole("cls.output", "classifier.out_proj"),
    whole("labels", "classifier"),
    whole("answer", "qa_outputs"),
    whole("tokens", "lm_head.dense"),
    whole("tokens_norm", "lm_head.layer_norm"),
    whole("output", "lm_head.decoder"),
    whole("output_bias", "lm_head.bias"),
];

fn first_position(config: &Config) -> Result<usize> {
    Ok(config.count(&["pad_token_id"])?.unwrap_or(1) + 1)
}
