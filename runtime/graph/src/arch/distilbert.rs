//! DistilBERT: BERT without segment embeddings.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::descriptor::DefaultValue::Word;
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, Topology};
use crate::ActivationFunction;

pub(super) static FAMILY: Family = Family {
    name: "distilbert",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = bert::read_model_config(config, 0)?;
        model_config.epsilon = 1e-12;
        Ok(model_config)
    },
    topology: Topology::Encoder(|config, h, b| {
        BertVariant { class_activation: Some(ActivationFunction::Relu), ..BertVariant::default() }
            .graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "distilbert",
            class: None,
            defaults: &[("activation", Word("gelu"))],
        }],
        prefix: "distilbert",
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
    whole!("token_embd", "distilbert.embeddings.word_embeddings"),
    whole!("position_embd", "distilbert.embeddings.position_embeddings"),
    whole!("token_embd_norm", "distilbert.embeddings.LayerNorm"),
    whole!("blk.{}.attn_q", "distilbert.transformer.layer.{}.attention.q_lin"),
    whole!("blk.{}.attn_k", "distilbert.transformer.layer.{}.attention.k_lin"),
    whole!("blk.{}.attn_v", "distilbert.transformer.layer.{}.attention.v_lin"),
    whole!("blk.{}.attn_output", "distilbert.transformer.layer.{}.attention.out_lin"),
    whole!("blk.{}.attn_output_norm", "distilbert.transformer.layer.{}.sa_layer_norm"),
    whole!("blk.{}.ffn_up", "distilbert.transformer.layer.{}.ffn.lin1"),
    whole!("blk.{}.ffn_down", "distilbert.transformer.layer.{}.ffn.lin2"),
    whole!("blk.{}.layer_output_norm", "distilbert.transformer.layer.{}.output_layer_norm"),
    whole!("cls", "pre_classifier"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("answer", "qa_outputs"),
    whole!("tokens", "vocab_transform"),
    whole!("tokens_norm", "vocab_layer_norm"),
    whole!("output", "vocab_projector"),
];
