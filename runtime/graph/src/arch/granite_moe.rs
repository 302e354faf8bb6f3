//! Granite with MoE.

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES, taken, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, TensorRule, TensorTransform, Topology, experts, granite};

pub(super) static FAMILY: Family = Family {
    name: "granitemoe",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: granite::FAMILY.read_config,
    topology: Topology::Decoder(granite::graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "granitemoe",
            class: Some("GraniteMoeForCausalLM"),
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
        keys: HuggingFaceKeys { experts: "num_local_experts", ..HuggingFaceKeys::LLAMA_WITH_BIASES },
    },
    gguf: GgufConfig { architectures: &["granitemoe"], rules: GGUF_RULES, keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const GGUF_RULES: &[&[TensorRule]] = &[LLAMA_GGUF_RULES, &experts::STACKED];

pub(super) const OWN: [TensorRule; 4] = [
    whole!("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"),
    taken!(
        "blk.{}.ffn_gate_exp.{}",
        "model.layers.{}.block_sparse_moe.input_linear",
        TensorTransform::Stacked { of: 2, part: 0 },
    ),
    taken!(
        "blk.{}.ffn_up_exp.{}",
        "model.layers.{}.block_sparse_moe.input_linear",
        TensorTransform::Stacked { of: 2, part: 1 },
    ),
    taken!(
        "blk.{}.ffn_down_exp.{}",
        "model.layers.{}.block_sparse_moe.output_linear",
        TensorTransform::Stacked { of: 1, part: 0 },
    ),
];

const RULES: &[&[TensorRule]] = &[&OWN, LLAMA_RULES];
