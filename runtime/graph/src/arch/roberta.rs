//! RoBERTa and XLM-R: BERT whose positions start after the padding token's id.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{ConfigReader, Family, FamilyDescriptor, TensorRule, Topology};
use crate::ActivationFunction;
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "roberta",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| bert::read_model_config(config, first_position(config)?),
    topology: Topology::Encoder(|config, h, b| {
        let first_position = first_position(config)?;
        let token_activation = Some(ActivationFunction::Gelu);
        BertVariant { first_position, token_activation, ..BertVariant::default() }.graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[
            ModelType {
                name: "roberta",
                class: None,
                defaults: &[
                    ("hidden_act", Word("gelu")),
                    ("layer_norm_eps", Number(1e-12)),
                    ("type_vocab_size", Count(2)),
                ],
            },
            ModelType {
                name: "xlm-roberta",
                class: None,
                defaults: &[
                    ("hidden_act", Word("gelu")),
                    ("layer_norm_eps", Number(1e-12)),
                    ("type_vocab_size", Count(2)),
                ],
            },
            ModelType {
                name: "camembert",
                class: None,
                defaults: &[
                    ("hidden_act", Word("gelu")),
                    ("layer_norm_eps", Number(1e-12)),
                    ("type_vocab_size", Count(2)),
                ],
            },
        ],
        prefix: "roberta",
        rules: &[RULES, HEAD_RULES],
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = bert::trunk! {
    "roberta";
};

/// The heads, which other families have as well.
pub(super) const HEAD_RULES: &[TensorRule] = &[
    whole!("cls", "classifier.dense"),
    whole!("cls.output", "classifier.out_proj"),
    whole!("labels", "classifier"),
    whole!("answer", "qa_outputs"),
    whole!("tokens", "lm_head.dense"),
    whole!("tokens_norm", "lm_head.layer_norm"),
    whole!("output", "lm_head.decoder"),
    whole!("output_bias", "lm_head.bias"),
];

/// Returns the row after that of the padding token.
pub(super) fn first_position(config: &ConfigReader) -> Result<usize> {
    Ok(config.count(&["pad_token_id"])?.unwrap_or(1) + 1)
}
