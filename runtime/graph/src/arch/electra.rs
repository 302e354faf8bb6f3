//! ELECTRA: BERT whose embeddings may be narrower than the hidden size.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, Topology};
use crate::ActivationFunction;

pub(super) static FAMILY: Family = Family {
    name: "electra",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| bert::read_model_config(config, 0),
    topology: Topology::Encoder(|config, h, b| {
        let shape = BertVariant {
            embedding: Some(config.count(&["embedding_size"])?.unwrap_or(128)),
            token_activation: Some(ActivationFunction::Gelu),
            class_activation: Some(ActivationFunction::Gelu),
            ..BertVariant::default()
        };
        shape.graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "electra",
            class: None,
            defaults: &[
                ("hidden_act", Word("gelu")),
                ("layer_norm_eps", Number(1e-12)),
                ("type_vocab_size", Count(2)),
            ],
        }],
        prefix: "electra",
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
    "electra";
    whole!("embd_projection", "electra.embeddings_project"),
    whole!("cls", "classifier.dense"),
    whole!("cls.output", "classifier.out_proj"),
    whole!("labels", "classifier"),
    whole!("answer", "qa_outputs"),
    whole!("tokens", "generator_predictions.dense"),
    whole!("tokens_norm", "generator_predictions.LayerNorm"),
    whole!("output", "generator_lm_head"),
};
