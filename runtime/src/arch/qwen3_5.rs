//! The text model of Qwen3.5: Qwen3-Next's graph without experts, with separate matrices.

use super::blocks::whole;
use super::{Family, TensorRule, Topology, qwen3_next, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "qwen35",
    hugging_face: &["qwen3_5_text", "qwen3_5"],
    gguf: &[],
    hugging_face_rules: &RULES,
    gguf_rules: &[],
    hyper: qwen3_next::hyper_of,
    form: Topology::Decoder(qwen3_next::graph),
};

const STATE: [TensorRule; 4] = [
    whole("blk.{}.ssm_qkv", "model.layers.{}.linear_attn.in_proj_qkv"),
    whole("blk.{}.ssm_gate", "model.layers.{}.linear_attn.in_proj_z"),
    whole("blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"),
    whole("blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"),
];

const RULES: [TensorRule; STATE.len() + qwen3_next::SHARED.len()] =
    tensor_map::joined(&STATE, &qwen3_next::SHARED);
