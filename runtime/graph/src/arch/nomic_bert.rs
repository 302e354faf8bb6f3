//! Nomic BERT: BERT with RoPE and gated MLPs.

use super::blocks::{self, block, whole};
use super::descriptor::DefaultValue::{Count, Number, Word};
use super::descriptor::{
    Ctranslate2Config, GgufConfig, GgufKeys, HuggingFaceConfig, HuggingFaceKeys, Initialization, ModelType,
    OnnxNames, RopeKeys, Tasks, TokenizerDefaults,
};
use super::heads::{HeadInput, Heads};
use super::{
    ConfigReader, Family, FamilyDescriptor, ModelConfig, TensorRule, Topology, bert, llama, model_config,
    rope_scaling,
};
use crate::{ActivationFunction, AttentionMask, Builder, Graph};
use siskin_format::{Error, Result};

pub(super) static FAMILY: Family = Family {
    name: "nomic-bert",
    tasks: Tasks::NONE,
    bidirectional_key: None,
    read_config: |config| {
        reject_other_blocks(config)?;
        bert::read_model_config(config, 0)
    },
    topology: Topology::Encoder(|config, h, b| {
        // Older configurations name the gated MLP instead of its activation.
        let activation = match config.word(&["activation_function"])? {
            Some("swiglu") => ActivationFunction::Silu,
            _ => model_config::activation(config, ActivationFunction::Silu)?,
        };
        graph(config, h, b, [activation, activation], 1000.0)
    }),
};

pub(super) static DESCRIPTOR: FamilyDescriptor = FamilyDescriptor {
    family: &FAMILY,
    hugging_face: HuggingFaceConfig {
        model_types: &[ModelType {
            name: "nomic_bert",
            class: Some("NomicBertModel"),
            defaults: &[
                ("hidden_act", Word("silu")),
                ("layer_norm_eps", Number(1e-12)),
                ("rope_theta", Number(1000.0)),
                ("type_vocab_size", Count(2)),
            ],
        }],
        prefix: "nomic_bert",
        rules: &[RULES],
        keys: HuggingFaceKeys {
            rope: RopeKeys { theta: 1000.0, ..RopeKeys::USUAL },
            others: bert::hugging_face_keys,
            ..HuggingFaceKeys::BERT
        },
    },
    gguf: GgufConfig { architectures: &["nomic-bert"], rules: &[], keys: GgufKeys::NONE },
    ctranslate2: Ctranslate2Config::NONE,
    onnx: OnnxNames::NONE,
    tokenizer: TokenizerDefaults::NONE,
    initialization: Initialization::NONE,
};

const RULES: &[TensorRule] = &[
    whole!("token_embd", "nomic_bert.embeddings.word_embeddings"),
    whole!("token_types", "nomic_bert.embeddings.token_type_embeddings"),
    whole!("token_embd_norm", "nomic_bert.emb_ln"),
    whole!("blk.{}.attn_qkv", "nomic_bert.encoder.layers.{}.attn.Wqkv"),
    whole!("blk.{}.attn_output", "nomic_bert.encoder.layers.{}.attn.out_proj"),
    whole!("blk.{}.attn_output_norm", "nomic_bert.encoder.layers.{}.norm1"),
    whole!("blk.{}.ffn_up", "nomic_bert.encoder.layers.{}.mlp.fc11"),
    whole!("blk.{}.ffn_gate", "nomic_bert.encoder.layers.{}.mlp.fc12"),
    whole!("blk.{}.ffn_down", "nomic_bert.encoder.layers.{}.mlp.fc2"),
    whole!("blk.{}.layer_output_norm", "nomic_bert.encoder.layers.{}.norm2"),
    whole!("cls", "nomic_bert.pooler.dense"),
    whole!("cls.output", "classifier"),
    whole!("labels", "classifier"),
    whole!("tokens", "cls.predictions.transform.dense"),
    whole!("tokens_norm", "cls.predictions.transform.layer_norm"),
    whole!("output", "cls.predictions.decoder"),
    whole!("output_bias", "cls.predictions.bias"),
];

/// Rejects options of the original implementation that no published model uses.
fn reject_other_blocks(config: &ConfigReader) -> Result<()> {
    for key in ["prenorm", "parallel_block", "use_rms_norm", "rotary_emb_interleaved", "causal"] {
        if config.flag(&[key])? == Some(true) {
            return Err(Error::unsupported(
                format!("config.{key}"),
                "blocks with this option are not supported",
            ));
        }
    }
    for key in ["rotary_emb_fraction", "rotary_scaling_factor"] {
        if let Some(number) = config.number(&[key])?
            && number != 1.0
        {
            return Err(Error::unsupported(
                format!("config.{key}"),
                format!("{number}; only 1 is supported"),
            ));
        }
    }
    Ok(())
}

/// Builds a post-norm encoder with bidirectional attention and RoPE, with `theta` as the default base. The activations
/// are those of the MLPs and of the masked-LM head.
pub(super) fn graph(
    config: &ConfigReader,
    h: &ModelConfig,
    mut b: Builder<'_>,
    [activation, token_activation]: [ActivationFunction; 2],
    theta: f64,
) -> Result<Graph> {
    let rope = b.rope_table(rope_scaling::read_kind(config, h, "full_attention", theta)?);
    let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
    if h.token_types > 0 && b.has("token_types.weight") {
        let token_types = b.embed_token_type("token_types.weight", h.token_types, h.width);
        x = b.add(x, token_types);
    }
    x = b.layer_norm(x, "token_embd_norm", h.epsilon);
    for layer in 0..h.layers {
        let (q, k, v) = blocks::queries_keys_values(&mut b, h, layer, x);
        let (q, k) = (b.rope(q, rope, h.head_size), b.rope(k, rope, h.head_size));
        let mut attention = blocks::attention(h, layer);
        attention.attention_mask = AttentionMask::Full;
        let attended = b.attention(q, k, v, attention);
        let attended = b.linear(attended, &block(layer, "attn_output"), h.width);
        x = b.add(x, attended);
        x = b.layer_norm(x, &block(layer, "attn_output_norm"), h.epsilon);
        let fed = llama::feed_forward(&mut b, h, layer, activation, x);
        x = b.add(x, fed);
        x = b.layer_norm(x, &block(layer, "layer_output_norm"), h.epsilon);
    }
    let heads = Heads {
        class_activation: None,
        token_activation,
        embedding: h.width,
        rest: 0,
        base: HeadInput::Hidden,
    };
    heads.finish(config, h, b, x)
}
