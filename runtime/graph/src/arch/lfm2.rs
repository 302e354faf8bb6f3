//! LFM2: gated short convolutions in most layers, GQA with QK-norm in the others, gated MLPs.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Flag, Number};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, RopeKeys, SizeKeys, Tasks, TokenizerDefaults, falling_with_depth,
    object,
};
use super::llama::feed_forward;
use super::{ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, rope_scaling};
use crate::op::CausalConv1d;
use crate::{ActivationFunction, Builder, Graph, NormKind, Op, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "lfm2",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: model_config,
    topology: Topology::Decoder(graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "lfm2",
            class: Some("Lfm2ForCausalLM"),
            defaults: &[
                ("block_auto_adjust_ff_dim", Flag(true)),
                ("block_ffn_dim_multiplier", Number(1.0)),
                ("block_multiple_of", Count(256)),
                ("conv_L_cache", Count(3)),
                ("conv_bias", Flag(false)),
                ("norm_eps", Number(1e-5)),
                ("num_key_value_heads", Count(8)),
                ("rope_theta", Number(1_000_000.0)),
            ],
        }],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys { epsilon: "norm_eps", ..SizeKeys::RMS_NORM },
            activation: &[],
            rope: RopeKeys { theta: 1_000_000.0, ..RopeKeys::USUAL },
            others: hugging_face_keys,
            ..HuggingFaceKeys::LLAMA
        },
    },
    gguf: GgufConfig {
        architectures: &["lfm2"],
        rules: &[&[whole!("output_norm", "token_embd_norm")]],
        keys: GgufKeys { others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization {
        tensors: &[
            "token_embd.weight",
            "blk.{}.attn_norm.weight",
            "blk.{}.attn_q.weight",
            "blk.{}.attn_k.weight",
            "blk.{}.attn_v.weight",
            "blk.{}.attn_q_norm.weight",
            "blk.{}.attn_k_norm.weight",
            "blk.{}.attn_output.weight",
            "blk.{}.shortconv.in_proj.weight",
            "blk.{}.shortconv.conv.weight",
            "blk.{}.shortconv.out_proj.weight",
            "blk.{}.ffn_norm.weight",
            "blk.{}.ffn_gate.weight",
            "blk.{}.ffn_up.weight",
            "blk.{}.ffn_down.weight",
            "output_norm.weight",
        ],
        vectors: &["shortconv.conv"],
        deviation: falling_with_depth,
    },
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    whole!("blk.{}.attn_norm", "model.layers.{}.operator_norm"),
    whole!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole!("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"),
    whole!("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"),
    whole!("blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj"),
    whole!("blk.{}.shortconv.conv", "model.layers.{}.conv.conv"),
    whole!("blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj"),
    whole!("blk.{}.ffn_norm", "model.layers.{}.ffn_norm"),
    whole!("blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"),
    whole!("blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"),
    whole!("blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"),
    whole!("output_norm", "model.embedding_norm"),
    whole!("output", "lm_head"),
];

/// The GGUF key for the KV heads of each layer, zero for convolutions.
const KV_HEADS: &str = "attention.head_count_kv";
/// Sanity limit for untrusted files: allocations grow with the kernel size.
const MAX_TAPS: usize = 64;

fn model_config(config: &ConfigReader) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::read(&with_one_count(config), |width| 4 * width)?;
    // Published configurations have both keys, and the model uses this one.
    let size = config.count(&["block_ff_dim"])?.unwrap_or(model_config.feed_forward);
    model_config.feed_forward = match config.flag(&["block_auto_adjust_ff_dim"])? {
        Some(true) => adjusted(config, size)?,
        _ => size,
    };
    model_config.check()?;
    Ok(model_config)
}

/// Returns the configuration with the KV heads of the layers that have any.
fn with_one_count(config: &ConfigReader) -> ConfigReader {
    let counts = config.get(KV_HEADS).and_then(Value::as_array);
    let max_heads = counts.and_then(|counts| counts.iter().filter_map(Value::as_u64).max());
    let Some(max_heads) = max_heads else { return config.clone() };
    let mut values = config.values().clone();
    values.insert(KV_HEADS.to_owned(), json!(max_heads));
    ConfigReader::new(values)
}

/// Returns the feed-forward size for the configured one: two thirds, times a factor, rounded up.
fn adjusted(config: &ConfigReader, size: usize) -> Result<usize> {
    let size = 2 * size / 3;
    let Some(factor) = config.number(&["block_ffn_dim_multiplier"])? else { return Ok(size) };
    let multiple = config.count(&["block_multiple_of"])?.unwrap_or(256);
    let size = (factor * size as f64) as usize;
    size.checked_next_multiple_of(multiple).ok_or_else(|| {
        Error::corrupt(
            "config.block_multiple_of",
            format!("{size} cannot be rounded up to a multiple of {multiple}"),
        )
    })
}

/// Returns which layers are convolutions.
fn convolutions(config: &ConfigReader, h: &ModelConfig) -> Result<Vec<bool>> {
    let check = |key: &str, entries: usize| match entries == h.layers {
        true => Ok(()),
        false => Err(Error::corrupt(format!("config.{key}"), format!("expected {} entries", h.layers))),
    };
    if let Some(types) = config.words(&["layer_types"])? {
        check("layer_types", types.len())?;
        let known = |kind: &&str| match *kind {
            "conv" => Ok(true),
            "full_attention" => Ok(false),
            other => Err(Error::unsupported("config.layer_types", format!("layer type '{other}'"))),
        };
        return types.iter().map(known).collect();
    }
    if let Some(attends) = config.numbers(&["full_attn_idxs"])? {
        return Ok((0..h.layers).map(|layer| !attends.contains(&(layer as f64))).collect());
    }
    if let Some(Value::Array(counts)) = config.get(KV_HEADS) {
        check(KV_HEADS, counts.len())?;
        return Ok(counts.iter().map(|count| count.as_u64() == Some(0)).collect());
    }
    Ok(vec![false; h.layers])
}

fn graph(config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
    if config.flag(&["conv_bias"])?.unwrap_or(false) {
        return Err(Error::unsupported("config.conv_bias", "convolutions with biases are not supported"));
    }
    let taps = config.count(&["conv_L_cache", "shortconv.l_cache"])?.unwrap_or(3);
    if taps == 0 || taps > MAX_TAPS {
        return Err(Error::corrupt("config.conv_L_cache", format!("{taps} is not a valid kernel size")));
    }
    let rope = b.rope_table(rope_scaling::read(config, h)?);
    let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
    for (layer, is_convolution) in convolutions(config, h)?.into_iter().enumerate() {
        let normed = b.rms_norm(x, &block(layer, "attn_norm"), h.epsilon);
        let mixed = match is_convolution {
            true => convolve(&mut b, h, layer, taps, normed),
            false => attend(&mut b, h, layer, rope, normed),
        };
        x = b.add(x, mixed);
        let normed = b.rms_norm(x, &block(layer, "ffn_norm"), h.epsilon);
        let fed = feed_forward(&mut b, h, layer, ActivationFunction::Silu, normed);
        x = b.add(x, fed);
    }
    let logits = blocks::logits(&mut b, h, NormKind::Rms, x);
    Ok(b.finish(logits))
}

fn attend(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, rope: usize, x: ValueId) -> ValueId {
    let (q, k, v) = blocks::queries_keys_values(b, h, layer, x);
    let q = b.norm_of(NormKind::Rms, q, &block(layer, "attn_q_norm"), h.head_size, h.epsilon);
    let k = b.norm_of(NormKind::Rms, k, &block(layer, "attn_k_norm"), h.head_size, h.epsilon);
    let (q, k) = (b.rope(q, rope, h.head_size), b.rope(k, rope, h.head_size));
    let attended = b.attention(q, k, v, blocks::attention(h, layer));
    b.linear(attended, &block(layer, "attn_output"), h.width)
}

/// A causal conv1d between two gates.
fn convolve(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, taps: usize, x: ValueId) -> ValueId {
    let parts = b.linear(x, &block(layer, "shortconv.in_proj"), 3 * h.width);
    let [before, after, x] = [0, 1, 2].map(|part| b.slice(parts, part * h.width, h.width));
    let x = product(b, before, x);
    let x = b.causal_conv1d(x, taps, &block(layer, "shortconv.conv.weight"));
    let x = product(b, after, x);
    b.linear(x, &block(layer, "shortconv.out_proj"), h.width)
}

/// `a · x`, exactly: of relu(a) and relu(−a), one is zero and the other ± a.
fn product(b: &mut Builder<'_>, a: ValueId, x: ValueId) -> ValueId {
    let negative = b.scale(a, -1.0);
    let above = b.gate(ActivationFunction::Relu, a, x);
    let below = b.gate(ActivationFunction::Relu, negative, x);
    let below = b.scale(below, -1.0);
    b.add(above, below)
}

fn is_convolution(model: &ExportedModel<'_>, layer: usize) -> bool {
    (model.has)(&block(layer, "shortconv.conv.weight"))
}

/// Returns the kernel size of the convolutions.
fn taps(model: &ExportedModel<'_>) -> Option<usize> {
    let mut ops = model.main_graph()?.nodes.iter().map(|node| &node.op);
    ops.find_map(Op::downcast_ref::<CausalConv1d>).map(|convolution| convolution.taps)
}

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let kind = |layer| if is_convolution(model, layer) { "conv" } else { "full_attention" };
    let types: Value = (0..model.model_config.layers).map(kind).collect();
    Ok(object(json!({
        "block_auto_adjust_ff_dim": false,
        "conv_L_cache": taps(model).unwrap_or(3),
        "conv_bias": false,
        "layer_types": types,
    })))
}

fn gguf_keys(model: &ExportedModel<'_>, _: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    let h = model.model_config;
    let counts = (0..h.layers).map(|layer| if is_convolution(model, layer) { 0 } else { h.kv_heads });
    Ok(vec![(KV_HEADS, counts.collect()), ("shortconv.l_cache", json!(taps(model).unwrap_or(3)))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: Value) -> ConfigReader {
        let mut config = object(json!({
            "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 10,
            "intermediate_size": 100,
        }));
        config.extend(object(more));
        ConfigReader::new(config)
    }

    #[test]
    fn each_source_names_the_convolutions_in_its_way() {
        for (more, convolutions) in [
            (json!({"layer_types": ["conv", "full_attention", "conv"]}), vec![true, false, true]),
            (json!({"full_attn_idxs": [1]}), vec![true, false, true]),
            (json!({"attention.head_count_kv": [0, 2, 0]}), vec![true, false, true]),
            (json!({"attention.head_count_kv": 2}), vec![false; 3]),
        ] {
            let config = config(more);
            let model_config = model_config(&config).unwrap();
            assert_eq!(super::convolutions(&config, &model_config).unwrap(), convolutions);
        }
        let short = config(json!({"attention.head_count_kv": [0, 2]}));
        let error = convolutions(&short, &model_config(&short).unwrap()).unwrap_err();
        assert_eq!(error.location(), "config.attention.head_count_kv");
    }

    #[test]
    fn feed_forward_sizes_are_adjusted_as_in_transformers() {
        for (more, size) in [
            (json!({}), 100),
            (json!({"block_ff_dim": 60}), 60),
            (json!({"block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": null}), 66),
            (
                json!({"block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.1, "block_multiple_of": 20}),
                80,
            ),
        ] {
            assert_eq!(model_config(&config(more)).unwrap().feed_forward, size);
        }
        let zero = json!({
            "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 0,
        });
        assert_eq!(model_config(&config(zero)).unwrap_err().location(), "config.block_multiple_of");
    }
}
