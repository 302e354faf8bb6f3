//! GPT-2: learned position embeddings, LayerNorm, fused queries, keys and values.

use super::blocks::{self, block, taken, whole};
use super::descriptor::DefaultValue::{Flag, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, SizeKeys, Tasks, TokenizerDefaults, falling_with_depth,
};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, model_config,
};
use crate::{ActivationFunction, Attention, Builder, Graph, NormKind};
use siskin_format::Result;

pub(super) static FAMILY: Family = Family {
    name: "gpt2",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, h, mut b| {
        let tokens = b.embed("token_embd.weight", h.vocabulary, h.width);
        let positions = b.embed_position("position_embd.weight", h.context, h.width, 0);
        let x = b.add(tokens, positions);
        let scales = scales(config, h)?;
        blocks_of(config, h, b, x, &|attention| attention.scale = scales[attention.layer])
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "gpt2",
            class: Some("GPT2LMHeadModel"),
            defaults: &[
                ("activation_function", Word("gelu_new")),
                ("layer_norm_epsilon", Number(1e-5)),
                ("scale_attn_by_inverse_layer_idx", Flag(false)),
                ("scale_attn_weights", Flag(true)),
            ],
        }],
        prefix: "transformer",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys {
                width: "n_embd",
                layers: "n_layer",
                heads: "n_head",
                feed_forward: "n_inner",
                context: "n_positions",
                epsilon: "layer_norm_epsilon",
            },
            activation: &["activation_function"],
            gelu_tanh: "gelu_new",
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig { architectures: &["gpt2"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization {
        tensors: &[
            "token_embd.weight",
            "position_embd.weight",
            "blk.{}.attn_norm",
            "blk.{}.attn_qkv",
            "blk.{}.attn_output",
            "blk.{}.ffn_norm",
            "blk.{}.ffn_up",
            "blk.{}.ffn_down",
            "output_norm",
        ],
        deviation: falling_with_depth,
        ..Initialization::NONE
    },
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "transformer.wte"),
    whole!("position_embd", "transformer.wpe"),
    whole!("blk.{}.attn_norm", "transformer.h.{}.ln_1"),
    taken!("blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", TensorTransform::Transposed),
    taken!("blk.{}.attn_output", "transformer.h.{}.attn.c_proj", TensorTransform::Transposed),
    whole!("blk.{}.ffn_norm", "transformer.h.{}.ln_2"),
    taken!("blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", TensorTransform::Transposed),
    taken!("blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", TensorTransform::Transposed),
    whole!("output_norm", "transformer.ln_f"),
    whole!("output", "lm_head"),
];

/// Returns the attention scale of each layer.
fn scales(config: &ConfigReader, h: &ModelConfig) -> Result<Vec<f32>> {
    let scaled = config.flag(&["scale_attn_weights"])?.unwrap_or(true);
    let by_layer = config.flag(&["scale_attn_by_inverse_layer_idx"])?.unwrap_or(false);
    let scale = if scaled { h.attention_scale() } else { 1.0 };
    Ok((0..h.layers).map(|layer| if by_layer { scale / (layer + 1) as f32 } else { scale }).collect())
}

/// The blocks that GPT-2, BLOOM and MPT share, from embeddings to logits.
pub(super) fn blocks_of(
    config: &ConfigReader,
    h: &ModelConfig,
    mut b: Builder<'_>,
    mut x: usize,
    adjust: &dyn Fn(&mut Attention),
) -> Result<Graph> {
    let activation = model_config::activation(config, ActivationFunction::GeluTanh)?;
    let clip = config.number(&["attn_config/clip_qkv", "attention.clamp_kqv"])?;
    let clip = clip.filter(|&limit| limit > 0.0).map(|limit| limit as f32);
    for layer in 0..h.layers {
        let normed = b.layer_norm(x, &block(layer, "attn_norm"), h.epsilon);
        let (q, k, v) = blocks::queries_keys_values(&mut b, h, layer, normed);
        let (q, k, v) = (b.clamp(q, clip), b.clamp(k, clip), b.clamp(v, clip));
        let mut attention = blocks::attention(h, layer);
        adjust(&mut attention);
        let attended = b.attention(q, k, v, attention);
        let attended = b.linear(attended, &block(layer, "attn_output"), h.width);
        x = b.add(x, attended);
        let normed = b.layer_norm(x, &block(layer, "ffn_norm"), h.epsilon);
        let fed = blocks::feed_forward(&mut b, h, layer, activation, normed);
        x = b.add(x, fed);
    }
    let logits = blocks::logits(&mut b, h, NormKind::Layer, x);
    Ok(b.finish(logits))
}
