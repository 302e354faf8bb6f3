//! Mixtral: Llama with MoE.

use super::blocks::{LLAMA_RULES, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, Tasks, TokenizerDefaults,
};
use super::llama::LlamaVariant;
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, llama};

pub(super) static FAMILY: Family = Family {
    name: "mixtral",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        model_config.slide(config, |_| true)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant::default().graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "mixtral",
            class: Some("MixtralForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("num_experts_per_tok", Count(2)),
                ("num_key_value_heads", Count(8)),
                ("rms_norm_eps", Number(1e-5)),
                ("rope_theta", Number(1_000_000.0)),
            ],
        }],
        prefix: "model",
        rules: RULES,
        keys: HuggingFaceKeys { experts: "num_local_experts", ..HuggingFaceKeys::LLAMA },
    },
    gguf: GgufConfig {
        architectures: &[],
        rules: &[],
        keys: GgufKeys { runs_as: Some(&llama::DESCRIPTOR), ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const OWN: [TensorRule; 4] = [
    whole!("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"),
    whole!("blk.{}.ffn_gate_exp.{}", "model.layers.{}.block_sparse_moe.experts.{}.w1"),
    whole!("blk.{}.ffn_up_exp.{}", "model.layers.{}.block_sparse_moe.experts.{}.w3"),
    whole!("blk.{}.ffn_down_exp.{}", "model.layers.{}.block_sparse_moe.experts.{}.w2"),
];

const RULES: &[&[TensorRule]] = &[&OWN, LLAMA_RULES];
