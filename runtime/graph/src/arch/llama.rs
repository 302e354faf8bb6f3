//! Llama and the models that share its graph: SmolLM2, TinyLlama, Llama 2 and 3.

use super::blocks::{self, LLAMA_GGUF_RULES, LLAMA_RULES, block};
use super::descriptor::DefaultValue::{Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization,
    LLAMA_TENSORS, ModelType, OnnxNames, Tasks, TokenizerDefaults, falling_with_depth,
};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, experts, model_config,
    rope_scaling,
};
use crate::{ActivationFunction, Attention, Builder, GateLimits, Graph, NormKind, RopeTable, ValueId};
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "llama",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, model_config, b| {
        LlamaVariant::default().graph(config, model_config, b)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "llama",
            class: Some("LlamaForCausalLM"),
            defaults: &[("hidden_act", Word("silu")), ("rms_norm_eps", Number(1e-6))],
        }],
        prefix: "model",
        rules: &[LLAMA_RULES],
        keys: HuggingFaceKeys::LLAMA_WITH_BIASES,
    },
    gguf: GgufConfig {
        architectures: &["llama"],
        rules: GGUF_RULES,
        keys: GgufKeys { many_layers: Some(80), ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization {
        tensors: LLAMA_TENSORS,
        deviation: falling_with_depth,
        ..Initialization::NONE
    },
};

/// Llama files may contain experts: in GGUF, Mixtral is part of the family.
const GGUF_RULES: &[&[TensorRule]] = &[LLAMA_GGUF_RULES, &experts::STACKED];

/// The variants of Llama's descendants.
pub(super) struct LlamaVariant {
    /// Multiplier of the embeddings.
    pub embedding: f32,
    /// Multiplier of a block's output before it is added to the residual stream.
    pub residual: f32,
    /// Multiplier of the logits.
    pub logits: f32,
    /// Changes to a layer's attention.
    pub attention: Box<dyn Fn(&mut Attention)>,
    /// Whether a layer uses RoPE (false: NoPE).
    pub rotates: Box<dyn Fn(usize) -> bool>,
    /// QK-norm per head.
    pub head_norm: bool,
    /// QK-norm over all heads.
    pub row_norm: bool,
    /// Whether the weights of selected experts are normalized to a sum of 1, unless configured.
    pub normalizes: bool,
    /// The RoPE table; `None`: read from the configuration.
    pub rope: Option<RopeTable>,
    /// Clamping of expert gates.
    pub limits: Option<GateLimits>,
    /// Clamps queries, keys and values to ± this.
    pub clamp: Option<f32>,
}

impl Default for LlamaVariant {
    fn default() -> Self {
        Self {
            embedding: 1.0,
            residual: 1.0,
            logits: 1.0,
            attention: Box::new(|_| {}),
            rotates: Box::new(|_| true),
            head_norm: false,
            row_norm: false,
            normalizes: true,
            rope: None,
            limits: None,
            clamp: None,
        }
    }
}

impl LlamaVariant {
    pub(super) fn graph(&self, config: &ConfigReader, h: &ModelConfig, mut b: Builder<'_>) -> Result<Graph> {
        let activation = model_config::activation(config, ActivationFunction::Silu)?;
        let rope = match &self.rope {
            Some(rope) => rope.clone(),
            None => rope_scaling::read(config, h)?,
        };
        let rope = b.rope_table(rope);
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        x = b.scale(x, self.embedding);
        for layer in 0..h.layers {
            let normed = b.rms_norm(x, &block(layer, "attn_norm"), h.epsilon);
            let attended = self.attend(&mut b, h, layer, rope, normed);
            let attended = b.scale(attended, self.residual);
            x = b.add(x, attended);
            let normed = b.rms_norm(x, &block(layer, "ffn_norm"), h.epsilon);
            let fed = match experts::routing(config, &b, layer, self.normalizes)? {
                Some(routing) => {
                    let gate = self
                        .limits
                        .map_or(experts::ExpertGate::Plain(activation), experts::ExpertGate::Limited);
                    experts::feed_forward(&mut b, config, h, layer, gate, routing, normed)?
                }
                None => feed_forward(&mut b, h, layer, activation, normed),
            };
            let fed = b.scale(fed, self.residual);
            x = b.add(x, fed);
        }
        let logits = blocks::logits(&mut b, h, NormKind::Rms, x);
        let logits = b.scale(logits, self.logits);
        Ok(b.finish(logits))
    }

    fn attend(&self, b: &mut Builder<'_>, h: &ModelConfig, layer: usize, rope: usize, x: ValueId) -> ValueId {
        let (mut q, mut k, v) = blocks::queries_keys_values(b, h, layer, x);
        if self.head_norm || self.row_norm {
            let group = |columns: usize| if self.head_norm { h.head_size } else { columns };
            let norms = [
                (block(layer, "attn_q_norm"), h.query_columns()),
                (block(layer, "attn_k_norm"), h.kv_columns()),
            ];
            let [(q_norm, q_columns), (k_norm, k_columns)] = &norms;
            q = b.norm_of(NormKind::Rms, q, q_norm, group(*q_columns), h.epsilon);
            k = b.norm_of(NormKind::Rms, k, k_norm, group(*k_columns), h.epsilon);
        }
        let (mut q, mut k, v) = (b.clamp(q, self.clamp), b.clamp(k, self.clamp), b.clamp(v, self.clamp));
        if (self.rotates)(layer) {
            q = b.rope(q, rope, h.head_size);
            k = b.rope(k, rope, h.head_size);
        }
        let mut attention = blocks::attention(h, layer);
        if b.has(&block(layer, "attn_sinks.weight")) {
            attention.sinks = Some(b.vector(&block(layer, "attn_sinks.weight"), h.heads));
        }
        (self.attention)(&mut attention);
        let attended = b.attention(q, k, v, attention);
        b.linear(attended, &block(layer, "attn_output"), h.width)
    }
}

/// The gated MLP, with separate or fused gate and up matrices.
pub(super) fn feed_forward(
    b: &mut Builder<'_>,
    h: &ModelConfig,
    layer: usize,
    activation: ActivationFunction,
    x: ValueId,
) -> ValueId {
    let (gate, up) = if b.has(&block(layer, "ffn_gate.weight")) {
        let gate = b.linear(x, &block(layer, "ffn_gate"), h.feed_forward);
        (gate, b.linear(x, &block(layer, "ffn_up"), h.feed_forward))
    } else {
        let both = b.linear(x, &block(layer, "ffn_up"), 2 * h.feed_forward);
        (b.slice(both, 0, h.feed_forward), b.slice(both, h.feed_forward, h.feed_forward))
    };
    let gated = b.gate(activation, gate, up);
    b.linear(gated, &block(layer, "ffn_down"), h.width)
}
