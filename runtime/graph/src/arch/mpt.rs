//! MPT: GPT-2's blocks with ALiBi, exact GELU and no biases.

use super::blocks::{alibi_slopes, whole};
use super::descriptor::DefaultValue::Number;
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, SizeKeys, Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, gpt2};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "mpt",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, h, mut b| {
        if config.flag(&["attn_config/alibi"])? == Some(false) {
            return Err(Error::unsupported(
                "config.attn_config.alibi",
                "only models with ALiBi are supported",
            ));
        }
        let max_bias =
            config.number(&["attn_config/alibi_bias_max", "attention.max_alibi_bias"])?.unwrap_or(8.0);
        let scale = config.number(&["attn_config/softmax_scale"])?.map(|scale| scale as f32);
        let slopes = alibi_slopes(h.heads, max_bias);
        let mut values = config.values().clone();
        values.insert("hidden_act".to_owned(), Value::from("gelu"));
        let x = b.embed("token_embd.weight", h.vocabulary, h.width);
        gpt2::blocks_of(&super::ConfigReader::new(values), h, b, x, &|attention| {
            attention.alibi.clone_from(&slopes);
            attention.scale = scale.unwrap_or(attention.scale);
        })
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "mpt",
            class: Some("MptForCausalLM"),
            defaults: &[("layer_norm_epsilon", Number(1e-5))],
        }],
        prefix: "transformer",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys {
                width: "d_model",
                layers: "n_layers",
                heads: "n_heads",
                feed_forward: "",
                context: "max_seq_len",
                epsilon: "layer_norm_epsilon",
            },
            others: hugging_face_keys,
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig {
        architectures: &["mpt"],
        rules: &[],
        keys: GgufKeys { others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
    // Hugging Face's MPT always uses F = 4 D and ignores `expansion_ratio`.
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "transformer.wte"),
    whole!("blk.{}.attn_norm", "transformer.blocks.{}.norm_1"),
    whole!("blk.{}.attn_qkv", "transformer.blocks.{}.attn.Wqkv"),
    whole!("blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj"),
    whole!("blk.{}.ffn_norm", "transformer.blocks.{}.norm_2"),
    whole!("blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj"),
    whole!("blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj"),
    whole!("output_norm", "transformer.norm_f"),
    whole!("output", "lm_head"),
];

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let max_bias = model.config.number(&["attention.max_alibi_bias"])?.unwrap_or(8.0);
    // Transformers accepts integers only.
    let max_bias = if max_bias.fract() == 0.0 { json!(max_bias as u64) } else { json!(max_bias) };
    let clip = model.config.get("attention.clamp_kqv").cloned();
    let mut keys = Map::new();
    keys.insert(
        "attn_config".to_owned(),
        json!({"alibi": true, "alibi_bias_max": max_bias, "clip_qkv": clip}),
    );
    Ok(keys)
}

fn gguf_keys(model: &ExportedModel<'_>, _: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    let max_bias = model.config.number(&["attn_config/alibi_bias_max"])?.unwrap_or(8.0);
    Ok(vec![("attention.max_alibi_bias", json!(max_bias))])
}
