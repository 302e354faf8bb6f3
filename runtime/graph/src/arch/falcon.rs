//! Falcon: attention and MLP in parallel after one norm or one each, with multi-query attention or GQA. Falcon-RW:
//! ALiBi, biases, and the MLP after attention.

use super::blocks::{self, block, taken, whole};
use super::descriptor::DefaultValue::{Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, SizeKeys, Tasks, TokenizerDefaults, falling_with_depth, object,
};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, model_config,
    rope_scaling,
};
use crate::{ActivationFunction, Builder, Graph, NormKind, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "falcon",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: model_config,
    topology: Topology::Decoder(graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "falcon",
            class: Some("FalconForCausalLM"),
            defaults: &[
                ("activation", Word("gelu")),
                ("alibi", Flag(false)),
                ("layer_norm_epsilon", Number(1e-5)),
                ("multi_query", Flag(true)),
                ("new_decoder_architecture", Flag(false)),
                ("parallel_attn", Flag(true)),
            ],
        }],
        prefix: "transformer",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys {
                feed_forward: "ffn_hidden_size",
                epsilon: "layer_norm_epsilon",
                ..SizeKeys::LAYER_NORM
            },
            activation: &["activation"],
            presence: &[("bias", "blk.0.attn_qkv.bias")],
            others: hugging_face_keys,
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig {
        architectures: &["falcon"],
        // With a norm for each, the first is the MLP's. Queries, keys and values are not interleaved.
        rules: &[&[whole!("blk.{}.mlp_norm", "blk.{}.attn_norm")]],
        keys: GgufKeys { others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization {
        tensors: &[
            "token_embd.weight",
            "blk.{}.attn_norm",
            "blk.{}.attn_qkv.weight",
            "blk.{}.attn_output.weight",
            "blk.{}.ffn_up.weight",
            "blk.{}.ffn_down.weight",
            "output_norm",
        ],
        deviation: falling_with_depth,
        ..Initialization::NONE
    },
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "transformer.word_embeddings"),
    whole!("blk.{}.attn_norm", "transformer.h.{}.input_layernorm"),
    whole!("blk.{}.attn_norm_2", "transformer.h.{}.ln_attn"),
    whole!("blk.{}.mlp_norm", "transformer.h.{}.ln_mlp"),
    taken!("blk.{}.attn_qkv", "transformer.h.{}.self_attention.query_key_value", TensorTransform::GroupedQkv),
    whole!("blk.{}.attn_output", "transformer.h.{}.self_attention.dense"),
    whole!("blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"),
    whole!("blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"),
    whole!("output_norm", "transformer.ln_f"),
    whole!("output", "lm_head"),
];

/// Whether the model has the decoder architecture of Falcon-40B.
fn is_new(config: &ConfigReader) -> Result<bool> {
    Ok(config.flag(&["new_decoder_architecture"])?.unwrap_or(false))
}

/// The model uses keys of its own for KV heads and feed-forward size, and derives the head size.
fn model_config(config: &ConfigReader) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
    let own = if is_new(config)? {
        config.count(&["num_kv_heads"])?.unwrap_or(model_config.heads)
    } else if config.flag(&["multi_query"])?.unwrap_or(true) {
        1
    } else {
        model_config.heads
    };
    model_config.kv_heads = config.count(&["attention.head_count_kv"])?.unwrap_or(own);
    let feed_forward = config.count(&["ffn_hidden_size", "feed_forward_length"])?;
    model_config.feed_forward = feed_forward.unwrap_or(4 * model_config.width);
    model_config.head_size = model_config.width / model_config.heads;
    model_config.check()?;
    Ok(model_config)
}

fn graph(config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
    let activation = model_config::activation_of(config, &["activation"], ActivationFunction::Gelu)?;
    let is_parallel = is_new(config)? || config.flag(&["parallel_attn"])?.unwrap_or(true);
    let positions = match config.flag(&["alibi"])?.unwrap_or(false) {
        true => Positions::Alibi(slopes(h)),
        false => Positions::Rope(b.rope_table(rope_scaling::read(config, h)?)),
    };
    let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
    for layer in 0..h.layers {
        let has_two = b.has(&block(layer, "attn_norm_2.weight"));
        let name = if has_two { "attn_norm_2" } else { "attn_norm" };
        let normed = b.layer_norm(x, &block(layer, name), h.epsilon);
        let attended = attend(&mut b, h, layer, &positions, normed);
        let sum = b.add(x, attended);
        let fed = match (is_parallel, has_two) {
            (true, true) => b.layer_norm(x, &block(layer, "mlp_norm"), h.epsilon),
            (true, false) => normed,
            (false, _) => b.layer_norm(sum, &block(layer, "ffn_norm"), h.epsilon),
        };
        let fed = blocks::feed_forward(&mut b, h, layer, activation, fed);
        x = b.add(sum, fed);
    }
    let logits = blocks::logits(&mut b, h, NormKind::Layer, x);
    Ok(b.finish(logits))
}

/// How attention knows positions.
enum Positions {
    /// The index of the RoPE table.
    Rope(usize),
    /// The slopes.
    Alibi(Vec<f32>),
}

fn attend(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, positions: &Positions, x: ValueId) -> ValueId {
    let (mut q, mut k, v) = blocks::fused_queries_keys_values(b, h, layer, x);
    let mut attention = blocks::attention(h, layer);
    match positions {
        Positions::Rope(rope) => {
            q = b.rope(q, *rope, h.head_size);
            k = b.rope(k, *rope, h.head_size);
        }
        Positions::Alibi(slopes) => attention.alibi.clone_from(slopes),
    }
    let attended = b.attention(q, k, v, attention);
    b.linear(attended, &block(layer, "attn_output"), h.width)
}

/// Returns the ALiBi slopes. Transformers rounds them to bf16, and scales the bias like the dot products. It rounds
/// their products with positions too, which are exact here.
fn slopes(h: &ModelConfig) -> Vec<f32> {
    let rounded = |slope: f32| {
        let bits = slope.to_bits();
        f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    };
    let slopes = blocks::alibi_slopes(h.heads, 8.0).into_iter();
    slopes.map(|slope| rounded(slope) * h.attention_scale()).collect()
}

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let h = model.model_config;
    let has_two = (model.has)("blk.0.attn_norm_2.weight");
    let mut attentions = model.main_graph().into_iter().flat_map(Graph::attentions);
    Ok(object(json!({
        "alibi": attentions.any(|attention| !attention.alibi.is_empty()),
        "multi_query": h.kv_heads == 1,
        "new_decoder_architecture": has_two || (2..h.heads).contains(&h.kv_heads),
        "num_kv_heads": h.kv_heads,
        "num_ln_in_parallel_attn": if has_two { 2 } else { 1 },
        "parallel_attn": !(model.has)("blk.0.ffn_norm.weight"),
    })))
}

fn gguf_keys(model: &ExportedModel<'_>, _: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    let mut attentions = model.main_graph().into_iter().flat_map(Graph::attentions);
    let missing = [
        ("ALiBi", attentions.any(|attention| !attention.alibi.is_empty())),
        ("biases", (model.has)("blk.0.attn_qkv.bias")),
        ("an MLP after attention", (model.has)("blk.0.ffn_norm.weight")),
    ];
    match missing.iter().find(|(_, is_there)| *is_there) {
        Some((part, _)) => Err(Error::unsupported("gguf", format!("llama.cpp has no {part} in falcon"))),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_architecture_has_its_kv_heads() {
        for (more, heads) in [
            (json!({}), 1),
            (json!({"multi_query": false, "num_kv_heads": 2}), 4),
            (json!({"new_decoder_architecture": true}), 4),
            (json!({"new_decoder_architecture": true, "num_kv_heads": 2}), 2),
            (json!({"attention.head_count_kv": 2}), 2),
        ] {
            let mut config = object(json!({
                "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 10,
                "num_key_value_heads": 4, "intermediate_size": 7,
            }));
            config.extend(object(more));
            let model_config = model_config(&ConfigReader::new(config)).unwrap();
            assert_eq!((model_config.kv_heads, model_config.feed_forward), (heads, 32));
        }
    }
}
