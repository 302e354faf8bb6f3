//! OLMoE: Llama with MoE, and QK-norm over all heads.

use super::blocks::LLAMA_RULES;
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, Tasks, TokenizerDefaults, routing_is_normalized,
};
use super::llama::LlamaVariant;
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, experts};
use serde_json::{Map, Value, json};
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "olmoe",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, model_config, b| {
        let clamp = config.number(&["clip_qkv", "attention.clamp_kqv"])?.map(|limit| limit as f32);
        LlamaVariant { row_norm: true, normalizes: false, clamp, ..LlamaVariant::default() }.graph(
            config,
            model_config,
            b,
        )
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "olmoe",
            class: Some("OlmoeForCausalLM"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("norm_topk_prob", Flag(false)),
                ("num_experts_per_tok", Count(8)),
                ("rms_norm_eps", Number(1e-5)),
            ],
        }],
        prefix: "model",
        rules: RULES,
        keys: HuggingFaceKeys {
            presence: &[("attention_bias", "blk.0.attn_q.bias")],
            others: hugging_face_keys,
            ..HuggingFaceKeys::LLAMA
        },
    },
    gguf: GgufConfig { architectures: &["olmoe"], rules: &[&experts::STACKED], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[&[TensorRule]] = &[&experts::QWEN_RULES, LLAMA_RULES];

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let mut keys = Map::new();
    keys.insert("norm_topk_prob".to_owned(), json!(routing_is_normalized(model.main_graph())));
    Ok(keys)
}
