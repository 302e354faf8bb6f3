//! Granite with MoE and a shared expert.

use super::blocks::{LLAMA_RULES, taken, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, TensorTransform, Topology, granite, granite_moe};

pub(super) static FAMILY: Family = Family {
    name: "granitemoeshared",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: granite::FAMILY.read_config,
    topology: Topology::Decoder(granite::graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "granitemoeshared",
            class: None,
            defaults: &[
                ("attention_multiplier", Number(1.0)),
                ("embedding_multiplier", Number(1.0)),
                ("hidden_act", Word("silu")),
                ("logits_scaling", Number(1.0)),
                ("num_experts_per_tok", Count(2)),
                ("residual_multiplier", Number(1.0)),
                ("rms_norm_eps", Number(1e-6)),
            ],
        }],
        prefix: "model",
        rules: RULES,
        keys: HuggingFaceKeys::LLAMA,
    },
    gguf: GgufConfig::NONE,
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const OWN: [TensorRule; 3] = [
    taken!(
        "blk.{}.ffn_gate_shexp.weight",
        "model.layers.{}.shared_mlp.input_linear.weight",
        TensorTransform::Chunk(0),
    ),
    taken!(
        "blk.{}.ffn_up_shexp.weight",
        "model.layers.{}.shared_mlp.input_linear.weight",
        TensorTransform::Chunk(1),
    ),
    whole!("blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"),
];

const RULES: &[&[TensorRule]] = &[&OWN, &granite_moe::OWN, LLAMA_RULES];
