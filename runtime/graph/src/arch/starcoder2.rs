//! StarCoder 2: LayerNorm, biases, plain MLP, RoPE, GQA and a sliding window.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, SizeKeys, Tasks, TokenizerDefaults,
};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, model_config, rope_scaling,
};
use crate::{ActivationFunction, NormKind};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "starcoder2",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: model_config,
    topology: Topology::Decoder(|config, h, mut b| {
        let activation = model_config::activation(config, ActivationFunction::GeluTanh)?;
        let rope = b.rope_table(rope_scaling::read(config, h)?);
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        for layer in 0..h.layers {
            let normed = b.layer_norm(x, &block(layer, "attn_norm"), h.epsilon);
            let (q, k, v) = blocks::queries_keys_values(&mut b, h, layer, normed);
            let q = b.rope(q, rope, h.head_size);
            let k = b.rope(k, rope, h.head_size);
            let attended = b.attention(q, k, v, blocks::attention(h, layer));
            let attended = b.linear(attended, &block(layer, "attn_output"), h.width);
            x = b.add(x, attended);
            let normed = b.layer_norm(x, &block(layer, "ffn_norm"), h.epsilon);
            let fed = blocks::feed_forward(&mut b, h, layer, activation, normed);
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
            name: "starcoder2",
            class: Some("Starcoder2ForCausalLM"),
            defaults: &[
                ("hidden_act", Word("gelu_pytorch_tanh")),
                ("norm_epsilon", Number(1e-5)),
                ("num_key_value_heads", Count(2)),
            ],
        }],
        prefix: "model",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys { epsilon: "norm_epsilon", ..SizeKeys::LAYER_NORM },
            presence: &[("use_bias", "blk.0.attn_q.bias")],
            ..HuggingFaceKeys::LLAMA
        },
    },
    gguf: GgufConfig { architectures: &["starcoder2"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

fn model_config(config: &ConfigReader) -> Result<ModelConfig> {
    for (key, known) in [("norm_type", "layer_norm"), ("mlp_type", "default")] {
        if let Some(other) = config.word(&[key])?.filter(|&word| word != known) {
            return Err(Error::unsupported(
                format!("config.{key}"),
                format!("'{other}'; only '{known}' is supported"),
            ));
        }
    }
    let mut model_config = ModelConfig::read(config, |width| 4 * width)?;
    // Published configurations also contain an `rms_norm_eps`, which the model does not use.
    if let Some(epsilon) = config.number(&["norm_epsilon", "attention.layer_norm_epsilon"])? {
        model_config.epsilon = epsilon as f32;
    }
    model_config.slide(config, |_| true)?;
    Ok(model_config)
}

const RULES: &[TensorRule] = &[
    whole!("token_embd", "model.embed_tokens"),
    whole!("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    whole!("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole!("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole!("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole!("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole!("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"),
    whole!("blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"),
    whole!("output_norm", "model.norm"),
    whole!("output", "lm_head"),
];
