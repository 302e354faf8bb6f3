//! BigBird with full attention: BERT with another activation.

use super::bert::{self, Shape};
use super::blocks::whole;
use super::{Config, Family, Form, Rule, hyper};
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
            class_activation: Some(hyper::activation(config, ActivationKind::GeluTanh)?),
            ..Shape::default()
        };
        shape.graph(config, h, b)
    }),
};

const RULES: &[Rule] = bert::trunk! {
    "bert";
    whole("cls", "classifier.dense"),
    whole("cls.output", "classifier.out_proj"),
    whole("labels", "classifier"),
    whole("answer", "qa_classifier.qa_outputs"),
    whole("tokens", "cls.predictions.transform.dense"),
    whole("tokens_norm", "cls.predictions.transform.LayerNorm"),
    whole("output", "cls.predictions.decoder"),
    whole("output_bias", "cls.predictions.bias"),
};

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
