//! GTE: Nomic BERT's graph with biases, other tensor names and another head.

use super::blocks::{taken, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{
    Family, FamilyDescriptor, TensorRule, TensorTransform, Topology, bert, model_config, nomic_bert,
};
use crate::ActivationFunction;

pub(super) static FAMILY: Family = Family {
    name: "gte",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| bert::read_model_config(config, 0),
    topology: Topology::Encoder(|config, h, b| {
        let activation = model_config::activation(config, ActivationFunction::Gelu)?;
        nomic_bert::graph(config, h, b, [activation, ActivationFunction::Gelu], 160_000.0)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "gte",
            class: None,
            defaults: &[
                ("hidden_act", Word("gelu")),
                ("layer_norm_eps", Number(1e-12)),
                ("rope_theta", Number(160_000.0)),
                ("type_vocab_size", Count(1)),
            ],
        }],
        prefix: "gte",
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
    whole!("token_embd", "gte.embeddings.word_embeddings"),
    whole!("token_types", "gte.embeddings.token_type_embeddings"),
    whole!("token_embd_norm", "gte.embeddings.LayerNorm"),
    whole!("blk.{}.attn_qkv", "gte.encoder.layer.{}.attention.qkv_proj"),
    whole!("blk.{}.attn_output", "gte.encoder.layer.{}.attention.o_proj"),
    whole!("blk.{}.attn_output_norm", "gte.encoder.layer.{}.attn_ln"),
    taken!("blk.{}.ffn_up", "gte.encoder.layer.{}.mlp.up_gate_proj", TensorTransform::Chunk(0)),
    taken!("blk.{}.ffn_gate", "gte.encoder.layer.{}.mlp.up_gate_proj", TensorTransform::Chunk(1)),
    whole!("blk.{}.ffn_down", "gte.encoder.layer.{}.mlp.down_proj"),
    whole!("blk.{}.layer_output_norm", "gte.encoder.layer.{}.mlp_ln"),
    whole!("cls", "gte.pooler.dense"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("tokens", "lm_head.dense"),
    whole!("tokens_norm", "lm_head.norm"),
    whole!("output", "lm_head.decoder"),
];
