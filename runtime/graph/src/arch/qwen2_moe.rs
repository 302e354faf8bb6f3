//! Qwen2 with MoE and a shared expert.

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
    name: "qwen2moe",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        let switched_on = config.flag(&["use_sliding_window"])?.unwrap_or(false);
        let end = config.count(&["max_window_layers"])?.unwrap_or(usize::MAX);
        model_config.slide(config, |layer| switched_on && layer.is_multiple_of(2) && layer < end)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant { normalizes: false, ..LlamaVariant::default() }.graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "qwen2_moe",
            class: None,
            defaults: &[
                ("hidden_act", Word("silu")),
                ("max_window_layers", Count(28)),
                ("norm_topk_prob", Flag(false)),
                ("num_experts_per_tok", Count(4)),
                ("num_key_value_heads", Count(16)),
                ("rms_norm_eps", Number(1e-6)),
                ("sliding_window", Count(0)),
                ("use_sliding_window", Flag(false)),
            ],
        }],
        prefix: "model",
        rules: RULES,
        keys: KEYS,
    },
    gguf: GgufConfig { architectures: &["qwen2moe"], rules: &[&experts::STACKED], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
    // The sliding window, if enabled, applies to every other layer before `max_window_layers`.
};

const RULES: &[&[TensorRule]] = &[&experts::QWEN_RULES, &experts::SHARED_RULES, LLAMA_RULES];

/// The keys of Qwen's configurations with experts.
pub(super) const KEYS: HuggingFaceKeys = HuggingFaceKeys {
    presence: &[("attention_bias", "blk.0.attn_q.bias")],
    others: hugging_face_keys,
    ..HuggingFaceKeys::LLAMA
};

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let plain = |layer: &usize| !(model.has)(&format!("blk.{layer}.ffn_gate_inp.weight"));
    let plain: Value = (0..model.model_config.layers).filter(plain).collect();
    let mut keys = Map::new();
    keys.insert("norm_topk_prob".to_owned(), json!(routing_is_normalized(model.main_graph())));
    keys.insert("decoder_sparse_step".to_owned(), json!(1));
    keys.insert("mlp_only_layers".to_owned(), plain);
    Ok(keys)
}
