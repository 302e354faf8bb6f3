//! A family in Hugging Face folders.

use super::ExportedModel;
use super::HasTensor;
use crate::arch::{ModelConfig, TensorRule};
use crate::{Graph, Op};
use serde_json::{Map, Value, json};
use siskin_format::Result;

/// A family in Hugging Face folders.
pub struct HuggingFaceConfig {
    /// The types of its configurations, the usual one first.
    pub model_types: &'static [ModelType],
    /// The module under which the classes with heads have the model without one; empty if there is none.
    pub prefix: &'static str,
    /// The tensor map, as lists that several families share; the first rule that matches applies.
    pub rules: &'static [&'static [TensorRule]],
    /// The keys of the configuration, for models from formats that have other keys.
    pub keys: HuggingFaceKeys,
}

/// A `model_type` of configurations.
pub struct ModelType {
    /// Its name.
    pub name: &'static str,
    /// The class that runs the model, written as `architectures`; `None` if the weights do not determine it.
    pub class: Option<&'static str>,
    /// The values of missing keys, where they do not follow from other keys. Written by
    /// `tests/golden-scripts/make_defaults.py`.
    pub defaults: &'static [(&'static str, DefaultValue)],
}

/// A default of a configuration class.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// A string.
    Word(&'static str),
    /// An object.
    Object(&'static [(&'static str, Self)]),
}

impl DefaultValue {
    /// Returns the value as JSON.
    pub fn json(self) -> Value {
        match self {
            Self::Flag(flag) => json!(flag),
            Self::Count(count) => json!(count),
            Self::Number(number) => json!(number),
            Self::Word(word) => json!(word),
            Self::Object(entries) => {
                Value::Object(entries.iter().map(|(key, value)| ((*key).to_owned(), value.json())).collect())
            }
        }
    }
}

impl HuggingFaceConfig {
    /// A family that has no Hugging Face folders.
    pub const NONE: Self = Self { model_types: &[], prefix: "", rules: &[], keys: HuggingFaceKeys::LLAMA };

    /// Returns the type of this name.
    pub fn model_type(&self, name: &str) -> Option<&'static ModelType> {
        self.model_types.iter().find(|known| known.name == name)
    }
}

/// The keys for sizes; empty if the class derives the value from others.
#[derive(Clone, Copy, Debug)]
pub struct SizeKeys {
    /// D.
    pub width: &'static str,
    /// L.
    pub layers: &'static str,
    /// H.
    pub heads: &'static str,
    /// F.
    pub feed_forward: &'static str,
    /// The maximum sequence length.
    pub context: &'static str,
    /// Epsilon of the norms.
    pub epsilon: &'static str,
}

impl SizeKeys {
    /// The keys of most classes with RMSNorm.
    pub const RMS_NORM: Self = Self { epsilon: "rms_norm_eps", ..Self::LAYER_NORM };

    /// The keys of most classes with LayerNorm.
    pub const LAYER_NORM: Self = Self {
        width: "hidden_size",
        layers: "num_hidden_layers",
        heads: "num_attention_heads",
        feed_forward: "intermediate_size",
        context: "max_position_embeddings",
        epsilon: "layer_norm_eps",
    };
}

/// The keys of RoPE.
#[derive(Clone, Copy)]
pub struct RopeKeys {
    /// The base, unless the source has another.
    pub theta: f64,
    /// The keys for the base.
    pub theta_keys: &'static [&'static str],
    /// The key for the fraction of columns that are rotated.
    pub fraction: &'static str,
    /// Whether the class expects that key even if all columns are rotated.
    pub always_fraction: bool,
    /// The key for the base of layers with a sliding window; empty if there is none.
    pub local: &'static str,
    /// Whether a model's keys are grouped by the kind of its layers.
    pub by_layer_kind: fn(&ModelConfig) -> bool,
    /// The base of layers with a sliding window, if grouped; `None`: that of the other layers.
    pub local_theta: Option<f64>,
}

impl RopeKeys {
    /// The keys of most classes.
    pub const USUAL: Self = Self {
        theta: 10_000.0,
        theta_keys: &["rope_theta"],
        fraction: "partial_rotary_factor",
        always_fraction: false,
        local: "",
        by_layer_kind: |_| false,
        local_theta: None,
    };
}

/// The keys in which a configuration is written.
#[derive(Clone, Copy)]
pub struct HuggingFaceKeys {
    /// The sizes.
    pub sizes: SizeKeys,
    /// Whether the class reads the head size from `head_dim`.
    pub head_size: bool,
    /// Whether the class needs the number of KV heads even if it is the number of heads.
    pub kv_heads: bool,
    /// The keys for the activation.
    pub activation: &'static [&'static str],
    /// The class's name of GELU's tanh approximation.
    pub gelu_tanh: &'static str,
    /// The key for the number of experts.
    pub experts: &'static str,
    /// RoPE.
    pub rope: RopeKeys,
    /// Keys that say whether the model has a tensor.
    pub presence: &'static [(&'static str, &'static str)],
    /// Keys that are copies of others: the key, and the one to copy.
    pub copies: &'static [(&'static str, &'static str)],
    /// Returns the `model_type` of a model; `None`: the first of the family.
    pub variant: fn(&ModelConfig, HasTensor<'_>) -> Option<&'static str>,
    /// Returns keys in addition to these; a key that is there already is replaced.
    pub others: fn(&ExportedModel<'_>) -> Result<Map<String, Value>>,
}

impl HuggingFaceKeys {
    /// The keys of Llama's configuration, which most decoders share.
    pub const LLAMA: Self = Self {
        sizes: SizeKeys::RMS_NORM,
        head_size: true,
        kv_heads: true,
        activation: &["hidden_act"],
        gelu_tanh: "gelu_pytorch_tanh",
        experts: "num_experts",
        rope: RopeKeys::USUAL,
        presence: &[],
        copies: &[],
        variant: |_, _| None,
        others: |_| Ok(Map::new()),
    };

    /// The keys of BERT's configuration, which most encoders share.
    pub const BERT: Self =
        Self { sizes: SizeKeys::LAYER_NORM, head_size: false, kv_heads: false, ..Self::LLAMA };

    /// The keys of Llama's configuration with flags for biases.
    pub const LLAMA_WITH_BIASES: Self = Self {
        presence: &[("attention_bias", "blk.0.attn_q.bias"), ("mlp_bias", "blk.0.ffn_up.bias")],
        ..Self::LLAMA
    };
}

/// Returns the attention type of each layer.
pub(in crate::arch) fn layer_types(model_config: &ModelConfig) -> Value {
    let kind = |window: &Option<usize>| match window {
        Some(_) => "sliding_attention",
        None => "full_attention",
    };
    model_config.windows.iter().map(kind).collect()
}

/// Returns true if the weights of selected experts are normalized to a sum of one.
pub(in crate::arch) fn routing_is_normalized(graph: Option<&Graph>) -> bool {
    let mut nodes = graph.into_iter().flat_map(|graph| &graph.nodes);
    nodes.any(|node| matches!(&node.op, Op::Route(route) if route.routing.normalize))
}
