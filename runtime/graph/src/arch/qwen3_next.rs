//! Qwen3-Next: gated delta net in most layers, gated attention in every fourth; MoE with a shared
//! expert.

use super::blocks::{self, block, taken, whole};
use super::descriptor::DefaultValue::{Count, Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType, OnnxNames,
    Tasks, TokenizerDefaults,
};
use super::llama::feed_forward;
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, StatePart, StateSizes, TensorRule, TensorTransform,
    Topology, experts, model_config, rope_scaling,
};
use crate::{ActivationFunction, Builder, Graph, LinearAttention, NormKind, StateUpdate, ValueId};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "qwen3next",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: read_model_config,
    topology: Topology::Decoder(graph),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "qwen3_next",
            class: None,
            defaults: &[
                ("head_dim", Count(256)),
                ("hidden_act", Word("silu")),
                ("linear_conv_kernel_dim", Count(4)),
                ("linear_key_head_dim", Count(128)),
                ("linear_num_key_heads", Count(16)),
                ("linear_num_value_heads", Count(32)),
                ("linear_value_head_dim", Count(128)),
                ("norm_topk_prob", Flag(true)),
                ("num_experts_per_tok", Count(10)),
                ("num_key_value_heads", Count(2)),
                ("partial_rotary_factor", Number(0.25)),
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

/// The tensor map shared with Qwen3.5.
pub(super) const SHARED: [TensorRule; 20] = [
    whole!("token_embd", "model.embed_tokens"),
    taken!("blk.{}.attn_norm", "model.layers.{}.input_layernorm", TensorTransform::PlusOne),
    taken!("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", TensorTransform::PlusOne),
    taken!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", TensorTransform::HalfOfHeads(0)),
    taken!("blk.{}.attn_gate", "model.layers.{}.self_attn.q_proj", TensorTransform::HalfOfHeads(1)),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    taken!("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", TensorTransform::PlusOne),
    taken!("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", TensorTransform::PlusOne),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole!("blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"),
    whole!("blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias"),
    whole!("blk.{}.ssm_a.weight", "model.layers.{}.linear_attn.A_log"),
    whole!("blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"),
    whole!("blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"),
    whole!("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    taken!("output_norm", "model.norm", TensorTransform::PlusOne),
    whole!("output", "lm_head"),
];

const STATE: [TensorRule; 4] = [
    taken!(
        "blk.{}.ssm_qkv",
        "model.layers.{}.linear_attn.in_proj_qkvz",
        TensorTransform::OfState(StatePart::QueriesKeysValues)
    ),
    taken!(
        "blk.{}.ssm_gate",
        "model.layers.{}.linear_attn.in_proj_qkvz",
        TensorTransform::OfState(StatePart::Gates)
    ),
    taken!(
        "blk.{}.ssm_beta",
        "model.layers.{}.linear_attn.in_proj_ba",
        TensorTransform::OfState(StatePart::Rates)
    ),
    taken!(
        "blk.{}.ssm_alpha",
        "model.layers.{}.linear_attn.in_proj_ba",
        TensorTransform::OfState(StatePart::Decays)
    ),
];

const RULES: &[&[TensorRule]] = &[&experts::SHARED_RULES, &experts::QWEN_RULES, &STATE, &SHARED];

/// Sanity limits for untrusted files: allocations grow with these.
const MAX_TAPS: usize = 64;
const MAX_HEADS: usize = 4096;
const MAX_COLUMNS: usize = 4096;

pub(super) fn read_model_config(config: &ConfigReader) -> Result<ModelConfig> {
    let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
    let sizes = StateSizes {
        key_heads: config.required(&["linear_num_key_heads"])?,
        value_heads: config.required(&["linear_num_value_heads"])?,
        key_size: config.required(&["linear_key_head_dim"])?,
        value_size: config.required(&["linear_value_head_dim"])?,
    };
    let StateSizes { key_heads, value_heads, key_size, value_size } = sizes;
    if key_size.max(value_size) > MAX_COLUMNS
        || value_heads > MAX_HEADS
        || !value_heads.is_multiple_of(key_heads)
    {
        let message = format!(
            "{value_heads} value heads of {value_size} columns for {key_heads} key heads of {key_size}"
        );
        return Err(Error::corrupt("config (linear heads)", message));
    }
    model_config.state = sizes;
    Ok(model_config)
}

/// Returns which layers use linear attention.
fn states(config: &ConfigReader, h: &ModelConfig) -> Result<Vec<bool>> {
    let Some(types) = config.words(&["layer_types"])? else {
        let every = config.count(&["full_attention_interval"])?.unwrap_or(4).max(1);
        return Ok((0..h.layers).map(|layer| (layer + 1) % every != 0).collect());
    };
    let known = |kind: &&str| match *kind {
        "linear_attention" => Ok(true),
        "full_attention" => Ok(false),
        other => Err(Error::unsupported(
            "config.layer_types",
            format!("attention type '{other}' is not supported"),
        )),
    };
    match types.len() == h.layers {
        true => types.iter().map(known).collect(),
        false => Err(Error::corrupt("config.layer_types", format!("expected {} entries", h.layers))),
    }
}

pub(super) fn graph(config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
    let activation = model_config::activation(config, ActivationFunction::Silu)?;
    let taps = config.count(&["linear_conv_kernel_dim"])?.unwrap_or(4);
    if taps == 0 || taps > MAX_TAPS {
        return Err(Error::corrupt(
            "config.linear_conv_kernel_dim",
            format!("{taps} is not a valid kernel size"),
        ));
    }
    let rope = b.rope_table(rope_scaling::read(config, h)?);
    let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
    for (layer, state) in states(config, h)?.into_iter().enumerate() {
        let normed = b.rms_norm(x, &block(layer, "attn_norm"), h.epsilon);
        let mixed = match state {
            true => through_state(&mut b, h, layer, (taps, activation), normed),
            false => attend(&mut b, h, layer, rope, normed),
        };
        x = b.add(x, mixed);
        let normed = b.rms_norm(x, &block(layer, "ffn_norm"), h.epsilon);
        let fed = match experts::routing(config, &b, layer, true)? {
            Some(routing) => {
                let gate = experts::ExpertGate::Plain(activation);
                experts::feed_forward(&mut b, config, h, layer, gate, routing, normed)?
            }
            None => feed_forward(&mut b, h, layer, activation, normed),
        };
        x = b.add(x, fed);
    }
    let logits = blocks::logits(&mut b, h, NormKind::Rms, x);
    Ok(b.finish(logits))
}

/// Attention with a sigmoid output gate.
fn attend(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, rope: usize, x: ValueId) -> ValueId {
    let (q, k, v) = blocks::queries_keys_values(b, h, layer, x);
    let gate = b.linear(x, &block(layer, "attn_gate"), h.query_columns());
    let q = b.norm_of(NormKind::Rms, q, &block(layer, "attn_q_norm"), h.head_size, h.epsilon);
    let k = b.norm_of(NormKind::Rms, k, &block(layer, "attn_k_norm"), h.head_size, h.epsilon);
    let (q, k) = (b.rope(q, rope, h.head_size), b.rope(k, rope, h.head_size));
    let attended = b.attention(q, k, v, blocks::attention(h, layer));
    let gated = b.gate(ActivationFunction::Sigmoid, gate, attended);
    b.linear(gated, &block(layer, "attn_output"), h.width)
}

/// The gated delta rule after a causal conv1d.
fn through_state(
    b: &mut Builder<'_>,
    h: &ModelConfig,
    layer: usize,
    (taps, activation): (usize, ActivationFunction),
    x: ValueId,
) -> ValueId {
    let StateSizes { key_heads, value_heads, key_size, value_size } = h.state;
    let (keys, values) = (key_heads * key_size, value_heads * value_size);
    let mixed = b.linear(x, &block(layer, "ssm_qkv"), 2 * keys + values);
    let gate = b.linear(x, &block(layer, "ssm_gate"), values);
    let rate = b.linear(x, &block(layer, "ssm_beta"), value_heads);
    let decay = b.linear(x, &block(layer, "ssm_alpha"), value_heads);
    let mixed = b.causal_conv1d(mixed, taps, &block(layer, "ssm_conv1d.weight"));
    let mixed = b.activate(activation, mixed);
    let (q, k) = (b.slice(mixed, 0, keys), b.slice(mixed, keys, keys));
    let v = b.slice(mixed, 2 * keys, values);
    let q = b.l2_normalize(q, key_size, 1e-6, 1.0 / (key_size as f32).sqrt());
    let k = b.l2_normalize(k, key_size, 1e-6, 1.0);
    let rate = b.activate(ActivationFunction::Sigmoid, rate);
    let decay = b.decay_gate(decay, &block(layer, "ssm_a.weight"), &block(layer, "ssm_dt.bias"));
    let attention = LinearAttention {
        state: b.next_state(),
        heads: value_heads,
        query_heads: key_heads,
        key_heads,
        value_heads,
        key_size,
        value_size,
        rule: StateUpdate::GatedDelta,
    };
    let read = b.linear_attention(&[q, k, v, decay, rate], attention);
    let normed = b.norm_of(NormKind::Rms, read, &block(layer, "ssm_norm"), value_size, h.epsilon);
    let gated = b.gate(ActivationFunction::Silu, gate, normed);
    b.linear(gated, &block(layer, "ssm_out"), h.width)
}
