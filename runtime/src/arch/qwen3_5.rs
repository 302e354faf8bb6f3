//! The text model of Qwen3.5: Qwen3-Next's graph without experts, its matrices one by one.

use super::blocks::{taken, whole};
use super::{Family, Form, Rule, Take, qwen3_next};

pub(super) static FAMILY: Family = Family {
    name: "qwen35",
    hugging_face: &["qwen3_5_text", "qwen3_5"],
    gguf: &[],
    hugging_face_rules: RULES,
    gguf_rules: &[],
    hyper: qwen3_next::hyper_of,
    form: Form::Decoder(qwen3_next::graph),
};

const RULES: &[Rule] = &[
    whole("token_embd", "model.embed_tokens"),
    taken("blk.{}.attn_norm", "model.layers.{}.input_layernorm", Take::PlusOne),
    taken("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", Take::PlusOne),
    taken("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", Take::HalfOfHeads(0)),
    taken("blk.{}.attn_gate", "model.layers.{}.self_attn.q_proj", Take::HalfOfHeads(1)),
    whole("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    taken("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", Take::PlusOne),
    taken("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", Take::PlusOne),
    whole("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole("blk.{}.ssm_qkv", "model.layers.{}.linear_attn.in_proj_qkv"),
    whole("blk.{}.ssm_gate", "model.layers.{}.linear_attn.in_proj_z"),
    whole("blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"),
    whole("blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"),
    whole("blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"),
    whole("blk.{}.ssm_dt.bias", "model.layers.{}.linear_attn.dt_bias"),
    whole("blk.{}.ssm_a.weight", "model.layers.{}.linear_attn.A_log"),
    whole("blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"),
    whole("blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"),
    whole("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    taken("output_norm", "model.norm", Take::PlusOne),
    whole("output", "lm_head"),
];
