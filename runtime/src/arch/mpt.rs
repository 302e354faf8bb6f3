//! MPT: GPT-2's blocks with ALiBi, exact GELU and no biases.

use super::blocks::{alibi_slopes, whole};
use super::{Family, ModelConfig, TensorRule, Topology, gpt2};
use crate::Error;
use serde_json::Value;

pub(super) static FAMILY: Family = Family {
    name: "mpt",
    hugging_face: &["mpt"],
    gguf: &["mpt"],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    // Hugging Face's MPT always uses F = 4 D and ignores `expansion_ratio`.
    hyper: |config| ModelConfig::read(config, |width| 4 * width),
    form: Topology::Decoder(|config, h, mut b| {
        if config.flag(&["attn_config/alibi"])? == Some(false) {
            return Err(Error::unsupported(
                "config.attn_config.alibi",
                "only models with ALiBi are supported",
            ));
        }
        let most = config.number(&["attn_config/alibi_bias_max", "attention.max_alibi_bias"])?.unwrap_or(8.0);
        let scale = config.number(&["attn_config/softmax_scale"])?.map(|scale| scale as f32);
        let slopes = alibi_slopes(h.heads, most);
        let mut values = config.values().clone();
        values.insert("hidden_act".to_owned(), Value::from("gelu"));
        let x = b.embed("token_embd.weight", h.vocabulary, h.width);
        gpt2::blocks_of(&super::ConfigReader::new(values), h, b, x, &|attention| {
            attention.alibi.clone_from(&slopes);
            attention.scale = scale.unwrap_or(attention.scale);
        })
    }),
};

const RULES: &[TensorRule] = &[
    whole("token_embd", "transformer.wte"),
    whole("blk.{}.attn_norm", "transformer.blocks.{}.norm_1"),
    whole("blk.{}.attn_qkv", "transformer.blocks.{}.attn.Wqkv"),
    whole("blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj"),
    whole("blk.{}.ffn_norm", "transformer.blocks.{}.norm_2"),
    whole("blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj"),
    whole("blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj"),
    whole("output_norm", "transformer.norm_f"),
    whole("output", "lm_head"),
];
