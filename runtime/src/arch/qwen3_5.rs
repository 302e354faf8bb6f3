//! The text model of Qwen3.5: Qwen3-Next's graph without experts, its matrices one by one.

use super::blocks::whole;
use super::{Family, Form, Rule, qwen3_next, rules};

pub(super) static FAMILY: Family = Family {
    name: "qwen35",
    hugging_face: &["qwen3_5_text", "qwen3_5"],
    gguf: &[],
    hugging_face_rules: &RULES,
    gguf_rules: &[],
    hyper: qwen3_next::hyper_of,
    form: Form::Decoder(qwen3_next::graph),
};

const STATE: [Rule; 4] = [
    whole("blk.{}.ssm_qkv", "model.layers.{}.linear_attn.in_proj_qkv"),
    whole("blk.{}.ssm_gate", "model.layers.{}.linear_attn.in_proj_z"),
    whole("blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"),
    whole("blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"),
];

const RULES: [Rule; STATE.len() + qwen3_next::SHARED.len()] = rules::joined(&STATE, &qwen3_next::SHARED);
