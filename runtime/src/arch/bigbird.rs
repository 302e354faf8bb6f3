//! BigBird: BERT with another activation, and attention in blocks.

use super::bert::{self, Shape};
use super::blocks::whole;
use super::{Config, Family, Form, Rule, hyper};
use crate::graph::{ActivationKind, Sight};
use crate::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "big_bird",
    hugging_face: &["big_bird"],
    gguf: &[],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: |config| bert::hyper_of(config, 0),
    form: Form::Encoder(|config, h, b| {
        let shape = Shape {
            sight: Some(sight(config)?),
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
    whole("answer_up", "qa_classifier.intermediate.dense"),
    whole("answer_down", "qa_classifier.output.dense"),
    whole("answer_norm", "qa_classifier.output.LayerNorm"),
    whole("answer", "qa_classifier.qa_outputs"),
    whole("tokens", "cls.predictions.transform.dense"),
    whole("tokens_norm", "cls.predictions.transform.LayerNorm"),
    whole("output", "cls.predictions.decoder"),
    whole("output_bias", "cls.predictions.bias"),
};

/// Random blocks are drawn in training alone: see [`Sight::Blocks`].
fn sight(config: &Config) -> Result<Sight> {
    if config.flag(&["rescale_embeddings"])? == Some(true) {
        return Err(Error::unsupported("config.rescale_embeddings", "rescaled embeddings"));
    }
    match config.word(&["attention_type"])? {
        Some("original_full") => Ok(Sight::Whole),
        None | Some("block_sparse") => {
            let size = config.count(&["block_size"])?.unwrap_or(64);
            let random = config.count(&["num_random_blocks"])?.unwrap_or(3);
            if size == 0 || size > MOST || random > MOST {
                let message = format!("blocks of {size} with {random} at random");
                return Err(Error::corrupt("config.block_size", message));
            }
            Ok(Sight::Blocks { size, random })
        }
        Some(other) => {
            let message = format!("attention of type '{other}'");
            Err(Error::unsupported("config.attention_type", message))
        }
    }
}

/// Above this a file is hostile.
const MOST: usize = 1 << 16;
