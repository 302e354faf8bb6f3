//! MPNet: RoBERTa without segment embeddings, with a relative position bias shared by all layers.

use super::bert::{self, BertVariant};
use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, Topology, roberta};
use crate::{ActivationFunction, RelativePositionBias};

pub(super) static FAMILY: Family = Family {
    name: "mpnet",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| bert::read_model_config(config, FIRST_POSITION),
    topology: Topology::Encoder(|config, h, mut b| {
        let rows = config.count(&["relative_attention_num_buckets"])?.unwrap_or(BUCKETS);
        let table = b.vector("attn_rel_b.weight", rows * h.heads);
        let bias = RelativePositionBias { table, buckets: BUCKETS, max_distance: 128, bidirectional: true };
        let shape = BertVariant {
            first_position: FIRST_POSITION,
            bias: Some(bias),
            token_activation: Some(ActivationFunction::Gelu),
            ..BertVariant::default()
        };
        shape.graph(config, h, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "mpnet",
            class: None,
            defaults: &[
                ("hidden_act", Word("gelu")),
                ("layer_norm_eps", Number(1e-12)),
                ("relative_attention_num_buckets", Count(32)),
            ],
        }],
        prefix: "mpnet",
        rules: &[RULES, roberta::HEAD_RULES],
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// Fixed number of buckets: the reference uses the configured number only for the size of the table.
const BUCKETS: usize = 32;

/// The first rows belong to the padding token and to the one before it.
const FIRST_POSITION: usize = 2;

const RULES: &[TensorRule] = &[
    whole!("token_embd", "mpnet.embeddings.word_embeddings"),
    whole!("position_embd", "mpnet.embeddings.position_embeddings"),
    whole!("token_embd_norm", "mpnet.embeddings.LayerNorm"),
    whole!("attn_rel_b", "mpnet.encoder.relative_attention_bias"),
    whole!("blk.{}.attn_q", "mpnet.encoder.layer.{}.attention.attn.q"),
    whole!("blk.{}.attn_k", "mpnet.encoder.layer.{}.attention.attn.k"),
    whole!("blk.{}.attn_v", "mpnet.encoder.layer.{}.attention.attn.v"),
    whole!("blk.{}.attn_output", "mpnet.encoder.layer.{}.attention.attn.o"),
    whole!("blk.{}.attn_output_norm", "mpnet.encoder.layer.{}.attention.LayerNorm"),
    whole!("blk.{}.ffn_up", "mpnet.encoder.layer.{}.intermediate.dense"),
    whole!("blk.{}.ffn_down", "mpnet.encoder.layer.{}.output.dense"),
    whole!("blk.{}.layer_output_norm", "mpnet.encoder.layer.{}.output.LayerNorm"),
];
