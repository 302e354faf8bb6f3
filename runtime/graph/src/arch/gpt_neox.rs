//! GPT-NeoX and Pythia: partial RoPE, attention and MLP in parallel.

use super::blocks::{self, block, taken, whole};
use super::descriptor::DefaultValue::{Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, ExportedModel, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys,
    Initialization, ModelType, OnnxNames, RopeKeys, Tasks, TokenizerDefaults,
};
use super::{
    Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, model_config, rope_scaling,
};
use crate::{ActivationFunction, NormKind};
use serde_json::{Value, json};
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "gpt-neox",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, h, mut b| {
        let activation = model_config::activation(config, ActivationFunction::Gelu)?;
        let parallel = config.flag(&["use_parallel_residual"])?.unwrap_or(true);
        let rope = b.rope_table(rope_scaling::read(config, h)?);
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        for layer in 0..h.layers {
            let normed = b.layer_norm(x, &block(layer, "attn_norm"), h.epsilon);
            let (q, k, v) = blocks::queries_keys_values(&mut b, h, layer, normed);
            let q = b.rope(q, rope, h.head_size);
            let k = b.rope(k, rope, h.head_size);
            let attended = b.attention(q, k, v, blocks::attention(h, layer));
            let attended = b.linear(attended, &block(layer, "attn_output"), h.width);
            let stream = b.add(x, attended);
            let fed = b.layer_norm(if parallel { x } else { stream }, &block(layer, "ffn_norm"), h.epsilon);
            let fed = blocks::feed_forward(&mut b, h, layer, activation, fed);
            x = b.add(stream, fed);
        }
        let logits = blocks::logits(&mut b, h, NormKind::Layer, x);
        Ok(b.finish(logits))
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "gpt_neox",
            class: Some("GPTNeoXForCausalLM"),
            defaults: &[
                ("hidden_act", Word("gelu")),
                ("layer_norm_eps", Number(1e-5)),
                ("partial_rotary_factor", Number(0.25)),
                ("use_parallel_residual", Flag(true)),
            ],
        }],
        prefix: "gpt_neox",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            rope: RopeKeys {
                theta_keys: &["rope_theta", "rotary_emb_base"],
                fraction: "rotary_pct",
                always_fraction: true,
                ..RopeKeys::USUAL
            },
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig {
        architectures: &["gptneox"],
        rules: &[],
        keys: GgufKeys { others: gguf_keys, ..GgufKeys::NONE },
    },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "gpt_neox.embed_in"),
    whole!("blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"),
    taken!("blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value", TensorTransform::GroupedQkv),
    whole!("blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"),
    whole!("blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"),
    whole!("blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"),
    whole!("output_norm", "gpt_neox.final_layer_norm"),
    whole!("output", "embed_out"),
];

fn gguf_keys(model: &ExportedModel<'_>, _: &mut Vec<String>) -> Result<Vec<(&'static str, Value)>> {
    let parallel = model.config.flag(&["use_parallel_residual"])?.unwrap_or(true);
    Ok(vec![("use_parallel_residual", json!(parallel))])
}
