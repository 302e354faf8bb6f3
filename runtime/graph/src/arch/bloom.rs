//! BLOOM: GPT-2's blocks with ALiBi instead of position embeddings, and a norm after the token embeddings.

use super::blocks::{alibi_slopes, taken, whole};
use super::descriptor::DefaultValue::{Flag, Number};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, SizeKeys, Tasks, TokenizerDefaults,
};
use super::{Family, FamilyDescriptor, ModelConfig, TensorRule, TensorTransform, Topology, gpt2};
use crate::NormKind;
use siskin_format::Error;

pub(super) static FAMILY: Family = Family {
    name: "bloom",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| ModelConfig::read(config, |width| 4 * width),
    topology: Topology::Decoder(|config, h, mut b| {
        if config.flag(&["apply_residual_connection_post_layernorm"])?.unwrap_or(false) {
            return Err(Error::unsupported(
                "config.apply_residual_connection_post_layernorm",
                "only models whose residual bypasses the norm are supported",
            ));
        }
        let x = b.embed("token_embd.weight", h.vocabulary, h.width);
        let x = b.norm_of(NormKind::Layer, x, "token_embd_norm", h.width, h.epsilon);
        let slopes = alibi_slopes(h.heads, 8.0);
        gpt2::blocks_of(config, h, b, x, &|attention| attention.alibi.clone_from(&slopes))
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "bloom",
            class: Some("BloomForCausalLM"),
            defaults: &[
                ("apply_residual_connection_post_layernorm", Flag(false)),
                ("layer_norm_epsilon", Number(1e-5)),
            ],
        }],
        prefix: "transformer",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            sizes: SizeKeys {
                layers: "n_layer",
                heads: "n_head",
                feed_forward: "",
                context: "seq_length",
                epsilon: "layer_norm_epsilon",
                ..SizeKeys::LAYER_NORM
            },
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig { architectures: &["bloom"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "transformer.word_embeddings"),
    whole!("token_embd_norm", "transformer.word_embeddings_layernorm"),
    whole!("blk.{}.attn_norm", "transformer.h.{}.input_layernorm"),
    taken!("blk.{}.attn_qkv", "transformer.h.{}.self_attention.query_key_value", TensorTransform::GroupedQkv),
    whole!("blk.{}.attn_output", "transformer.h.{}.self_attention.dense"),
    whole!("blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"),
    whole!("blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"),
    whole!("blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"),
    whole!("output_norm", "transformer.ln_f"),
    whole!("output", "lm_head"),
];
