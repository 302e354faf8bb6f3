//! Phi 1, 1.5 and 2: one norm feeds attention and MLP in parallel.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, RopeKeys, Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, model_config, rope_scaling};
use crate::{ActivationFunction, Builder, NormKind, ValueId};
use serde_json::Value;
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "phi",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, h, mut b| {
        let activation = model_config::activation(config, ActivationFunction::GeluTanh)?;
        let rope = b.rope_table(rope_scaling::read(config, h)?);
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        for layer in 0..h.layers {
            let normed = b.layer_norm(x, &block(layer, "attn_norm"), h.epsilon);
            let (q, k, v) = blocks::queries_keys_values(&mut b, h, layer, normed);
            let q = head_norm(&mut b, h, layer, "attn_q_norm", q);
            let k = head_norm(&mut b, h, layer, "attn_k_norm", k);
            let q = b.rope(q, rope, h.head_size);
            let k = b.rope(k, rope, h.head_size);
            let attended = b.attention(q, k, v, blocks::attention(h, layer));
            let attended = b.linear(attended, &block(layer, "attn_output"), h.width);
            let fed = blocks::feed_forward(&mut b, h, layer, activation, normed);
            x = b.add(x, attended);
            x = b.add(x, fed);
        }
        let logits = blocks::logits(&mut b, h, NormKind::Layer, x);
        Ok(b.finish(logits))
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "phi",
            class: Some("PhiForCausalLM"),
            defaults: &[
                ("hidden_act", Word("gelu_new")),
                ("layer_norm_eps", Number(1e-5)),
                ("partial_rotary_factor", Number(0.5)),
            ],
        }],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            kv_heads: true,
            gelu_tanh: "gelu_new",
            rope: RopeKeys { always_fraction: true, ..RopeKeys::USUAL },
            presence: &[("qk_layernorm", "blk.0.attn_q_norm.weight")],
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig {
        architectures: &["phi2"],
        rules: &[],
        keys: GgufKeys { requires_output: true, others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    whole!("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    whole!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole!("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"),
    whole!("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.dense"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.fc1"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.fc2"),
    whole!("output_norm", "model.final_layernorm"),
    whole!("output", "lm_head"),
];

/// QK-norm per head, if the model has it.
fn head_norm(b: &mut Builder<'_>, h: &ModelConfig, layer: usize, name: &str, x: ValueId) -> ValueId {
    let name = block(layer, name);
    if !b.has(&format!("{name}.weight")) {
        return x;
    }
    b.norm_of(NormKind::Layer, x, &name, h.head_size, h.epsilon)
}

fn gguf_keys(model: &ExportedModel<'_>, _: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    match (model.has)("blk.0.attn_q_norm.weight") {
        true => Err(Error::unsupported("gguf", "llama.cpp has no QK-norm in phi2")),
        false => Ok(Vec::new()),
    }
}
