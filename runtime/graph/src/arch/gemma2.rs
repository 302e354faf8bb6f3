//! Gemma 2: norms before and after each block, alternating sliding windows, softcaps.

use super::blocks::{self, block, taken, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, GgufWindows, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, Tasks, TokenizerDefaults, layer_types, sliding_period,
};
use super::llama::feed_forward;
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, model_config,
    rope_scaling,
};
use crate::{ActivationFunction, Attention, Builder, Graph, NormKind, ValueId};
use serde_json::{Map, Value, json};
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "gemma2",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
        model_config.slide(config, |layer| layer % 2 == 0)?;
        Ok(model_config)
    },
    topology: Topology::Decoder(|config, model_config, mut b| {
        let rope = b.rope_table(rope_scaling::read(config, model_config)?);
        let softcap = config.number(&["attn_logit_softcapping"])?.map(|cap| cap as f32);
        let scale = attention_scale(config, model_config)?;
        let adjust = |attention: &mut Attention| {
            attention.softcap = softcap;
            attention.scale = scale;
        };
        Gemma { head_norm: false, rope_of: &|_| rope, adjust: &adjust }.graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "gemma2",
            class: Some("Gemma2ForCausalLM"),
            defaults: &[
                ("attn_logit_softcapping", Number(50.0)),
                ("final_logit_softcapping", Number(30.0)),
                ("head_dim", Count(256)),
                ("hidden_activation", Word("gelu_pytorch_tanh")),
                ("num_key_value_heads", Count(4)),
                ("query_pre_attn_scalar", Count(256)),
                ("rms_norm_eps", Number(1e-6)),
                ("sliding_window", Count(4096)),
            ],
        }],
        prefix: "model",
        rules: &[RULES],
        keys: KEYS,
    },
    gguf: GgufConfig {
        architectures: &["gemma2"],
        rules: &[&[
            whole!("blk.{}.ffn_post_norm", "blk.{}.post_ffw_norm"),
            whole!("blk.{}.attn_post_norm", "blk.{}.post_attention_norm"),
        ]],
        keys: GGUF_KEYS,
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

/// The keys of Gemma's configurations.
pub(super) const KEYS: HuggingFaceKeys = HuggingFaceKeys {
    activation: &["hidden_act", "hidden_activation"],
    presence: &[("attention_bias", "blk.0.attn_q.bias")],
    others: hugging_face_keys,
    ..HuggingFaceKeys::LLAMA
};

/// The metadata keys of Gemma's files.
pub(super) const GGUF_KEYS: GgufKeys =
    GgufKeys { windows: GgufWindows::Periodic, derives_scale: true, others: gguf_keys, ..GgufKeys::NONE };

pub(super) const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    taken!("blk.{}.attn_norm", "model.layers.{}.input_layernorm", TensorTransform::PlusOne),
    whole!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    taken!("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", TensorTransform::PlusOne),
    taken!("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", TensorTransform::PlusOne),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    taken!("blk.{}.attn_post_norm", "model.layers.{}.post_attention_layernorm", TensorTransform::PlusOne),
    taken!("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm", TensorTransform::PlusOne),
    whole!("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    taken!("blk.{}.ffn_post_norm", "model.layers.{}.post_feedforward_layernorm", TensorTransform::PlusOne),
    taken!("output_norm", "model.norm", TensorTransform::PlusOne),
    whole!("output", "lm_head"),
];

/// 1/√query_pre_attn_scalar. GGUF does not store that scalar: it is the head size except for the 27B models, which are
/// recognized by their 46 (Gemma 2) or 62 (Gemma 3) layers.
pub(super) fn attention_scale(config: &ConfigReader, model_config: &ModelConfig) -> Result<f32> {
    let scalar = match config.number(&["query_pre_attn_scalar"])? {
        Some(scalar) if scalar > 0.0 => scalar as f32,
        _ if model_config.layers == 46 || model_config.layers == 62 => {
            (model_config.width / model_config.heads) as f32
        }
        _ => model_config.head_size as f32,
    };
    Ok(1.0 / scalar.sqrt())
}

/// The common parts of Gemma 2 and 3.
pub(super) struct Gemma<'a> {
    pub head_norm: bool,
    pub rope_of: &'a dyn Fn(usize) -> usize,
    pub adjust: &'a dyn Fn(&mut Attention),
}

impl Gemma<'_> {
    pub(super) fn graph(&self, config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
        let activation = model_config::activation(config, ActivationFunction::GeluTanh)?;
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        x = b.scale(x, (h.width as f32).sqrt());
        for layer in 0..h.layers {
            let normed = b.rms_norm(x, &block(layer, "attn_norm"), h.epsilon);
            let attended = self.attend(&mut b, h, layer, normed);
            let attended = b.rms_norm(attended, &block(layer, "attn_post_norm"), h.epsilon);
            x = b.add(x, attended);
            let normed = b.rms_norm(x, &block(layer, "ffn_norm"), h.epsilon);
            let fed = feed_forward(&mut b, h, layer, activation, normed);
            let fed = b.rms_norm(fed, &block(layer, "ffn_post_norm"), h.epsilon);
            x = b.add(x, fed);
        }
        let logits = blocks::logits(&mut b, h, NormKind::Rms, x);
        let cap = config.number(&["final_logit_softcapping"])?.map(|cap| cap as f32);
        let logits = b.softcap(logits, cap);
        Ok(b.finish(logits))
    }

    fn attend(&self, b: &mut Builder<'_>, h: &ModelConfig, layer: usize, x: ValueId) -> ValueId {
        let (mut q, mut k, v) = blocks::queries_keys_values(b, h, layer, x);
        if self.head_norm {
            q = b.norm_of(NormKind::Rms, q, &block(layer, "attn_q_norm"), h.head_size, h.epsilon);
            k = b.norm_of(NormKind::Rms, k, &block(layer, "attn_k_norm"), h.head_size, h.epsilon);
        }
        let rope = (self.rope_of)(layer);
        q = b.rope(q, rope, h.head_size);
        k = b.rope(k, rope, h.head_size);
        let mut attention = blocks::attention(h, layer);
        (self.adjust)(&mut attention);
        let attended = b.attention(q, k, v, attention);
        b.linear(attended, &block(layer, "attn_output"), h.width)
    }
}

fn hugging_face_keys(model: &ExportedModel<'_>) -> Result<Map<String, Value>> {
    let attention = model.main_graph().and_then(|graph| graph.attentions().next());
    let scale = attention.map_or(1.0, |attention| f64::from(attention.scale));
    let mut keys = Map::new();
    keys.insert("query_pre_attn_scalar".to_owned(), json!((1.0 / (scale * scale)).round() as u64));
    keys.insert("layer_types".to_owned(), layer_types(model.model_config));
    Ok(keys)
}

fn gguf_keys(model: &ExportedModel<'_>, notes: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    let Some(period) = sliding_period(&model.model_config.windows, 1) else {
        notes.push("llama.cpp has no such pattern of layers with a sliding window".to_owned());
        return Ok(Vec::new());
    };
    Ok(vec![("attention.sliding_window_pattern", json!(period))])
}
