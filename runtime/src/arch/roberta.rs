//! RoBERTa and XLM-R: BERT whose positions start after the padding token's id.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::{ConfigReader, Family, TensorRule, Topology};
use crate::Result;
use crate::graph::ActivationKind;

pub(super) static FAMILY: Family = Family {
    name: "roberta",
    hugging_face: &["roberta", "xlm-roberta", "camembert"],
    gguf: &[],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: |config| bert::hyper_of(config, first_position(config)?),
    form: Topology::Encoder(|config, h, b| {
        let first_position = first_position(config)?;
        let token_activation = Some(ActivationKind::Gelu);
        BertVariant { first_position, token_activation, ..BertVariant::default() }.graph(config, h, b)
    }),
};

const RULES: &[TensorRule] = bert::trunk! {
    "roberta";
    whole("cls", "classifier.dense"),
    whole("cls.output", "classifier.out_proj"),
    whole("labels", "classifier"),
    whole("answer", "qa_outputs"),
    whole("tokens", "lm_head.dense"),
    whole("tokens_norm", "lm_head.layer_norm"),
    whole("output", "lm_head.decoder"),
    whole("output_bias", "lm_head.bias"),
};

/// Returns the row after that of the padding token.
pub(super) fn first_position(config: &ConfigReader) -> Result<usize> {
    Ok(config.count(&["pad_token_id"])?.unwrap_or(1) + 1)
}
