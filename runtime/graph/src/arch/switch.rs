//! Switch Transformers (arXiv:2101.03961): T5 with MoE in some layers, top-1 routing.

use super::blocks::whole;
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, t5};

pub(super) static FAMILY: Family = Family {
    name: "switch",
    tasks: Tasks::NAMED,
    bidirectional_key: None,
    read_config: t5::model_config,
    topology: t5::FORM,
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "switch_transformers",
            class: None,
            defaults: &[
                ("expert_capacity", Count(64)),
                ("layer_norm_epsilon", Number(1e-6)),
                ("relative_attention_max_distance", Count(128)),
                ("relative_attention_num_buckets", Count(32)),
                ("router_dtype", Word("float32")),
            ],
        }],
        prefix: "",
        rules: RULES,
        keys: HuggingFaceKeys::BERT,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::SHARED_EMBEDDINGS,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const OWN: [TensorRule; 10] = [
    whole!("enc.blk.{}.ffn_single", "encoder.block.{}.layer.1.mlp.wi"),
    whole!("enc.blk.{}.ffn_down", "encoder.block.{}.layer.1.mlp.wo"),
    whole!("enc.blk.{}.ffn_gate_inp", "encoder.block.{}.layer.1.mlp.router.classifier"),
    whole!("enc.blk.{}.ffn_up_exp.{}", "encoder.block.{}.layer.1.mlp.experts.expert_{}.wi"),
    whole!("enc.blk.{}.ffn_down_exp.{}", "encoder.block.{}.layer.1.mlp.experts.expert_{}.wo"),
    whole!("dec.blk.{}.ffn_single", "decoder.block.{}.layer.2.mlp.wi"),
    whole!("dec.blk.{}.ffn_down", "decoder.block.{}.layer.2.mlp.wo"),
    whole!("dec.blk.{}.ffn_gate_inp", "decoder.block.{}.layer.2.mlp.router.classifier"),
    whole!("dec.blk.{}.ffn_up_exp.{}", "decoder.block.{}.layer.2.mlp.experts.expert_{}.wi"),
    whole!("dec.blk.{}.ffn_down_exp.{}", "decoder.block.{}.layer.2.mlp.experts.expert_{}.wo"),
];

const RULES: &[&[TensorRule]] = &[&OWN, t5::RULES];
