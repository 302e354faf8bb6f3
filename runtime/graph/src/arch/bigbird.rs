//! BigBird (arXiv:2007.14062): BERT with another activation and block-sparse attention.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{ConfigReader, Family, FamilyDescriptor, TensorRule, Topology, model_config};
use crate::{ActivationFunction, AttentionMask};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "big_bird",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| bert::read_model_config(config, 0),
    topology: Topology::Encoder(|config, h, b| {
        let shape = BertVariant {
            attention_mask: Some(attention_mask(config)?),
            activation: Some(ActivationFunction::GeluTanh),
            class_activation: Some(model_config::activation(config, ActivationFunction::GeluTanh)?),
            ..BertVariant::default()
        };
        shape.graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "big_bird",
            class: None,
            defaults: &[
                ("block_size", Count(64)),
                ("hidden_act", Word("gelu_new")),
                ("layer_norm_eps", Number(1e-12)),
                ("num_random_blocks", Count(3)),
                ("rescale_embeddings", Flag(false)),
                ("type_vocab_size", Count(2)),
            ],
        }],
        prefix: "bert",
        rules: &[RULES],
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = bert::trunk! {
    "bert";
    whole!("cls", "classifier.dense"),
    whole!("cls.output", "classifier.out_proj"),
    whole!("labels", "classifier"),
    whole!("answer_up", "qa_classifier.intermediate.dense"),
    whole!("answer_down", "qa_classifier.output.dense"),
    whole!("answer_norm", "qa_classifier.output.LayerNorm"),
    whole!("answer", "qa_classifier.qa_outputs"),
    whole!("tokens", "cls.predictions.transform.dense"),
    whole!("tokens_norm", "cls.predictions.transform.LayerNorm"),
    whole!("output", "cls.predictions.decoder"),
    whole!("output_bias", "cls.predictions.bias"),
};

/// Random blocks are only drawn in training: see [`AttentionMask::BigBird`].
fn attention_mask(config: &ConfigReader) -> Result<AttentionMask> {
    if config.flag(&["rescale_embeddings"])? == Some(true) {
        return Err(Error::unsupported("config.rescale_embeddings", "rescaled embeddings are not supported"));
    }
    match config.word(&["attention_type"])? {
        Some("original_full") => Ok(AttentionMask::Full),
        None | Some("block_sparse") => {
            let size = config.count(&["block_size"])?.unwrap_or(64);
            let random = config.count(&["num_random_blocks"])?.unwrap_or(3);
            if size == 0 || size > MAX || random > MAX {
                let message = format!("blocks of {size} tokens with {random} random blocks are out of range");
                return Err(Error::corrupt("config.block_size", message));
            }
            Ok(AttentionMask::BigBird { size, random })
        }
        Some(other) => {
            let message = format!("attention of type '{other}'");
            Err(Error::unsupported("config.attention_type", message))
        }
    }
}

/// A sanity limit: larger values only occur in malicious files.
const MAX: usize = 1 << 16;
