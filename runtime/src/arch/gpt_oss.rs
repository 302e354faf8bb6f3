//! GPT-OSS: experts with limited gates, a window on every other layer, and a sink in every head's softmax.

use super::blocks::{LLAMA_RULES, taken, whole};
use super::llama::Shape;
use super::{Config, Family, Form, Hyper, Rule, Take, experts, rope, rules};
use crate::Result;
use crate::graph::Limits;

pub(super) static FAMILY: Family = Family {
    name: "gpt-oss",
    hugging_face: &["gpt_oss"],
    gguf: &["gpt-oss"],
    hugging_face_rules: &RULES,
    gguf_rules: &GGUF_RULES,
    hyper,
    form: Form::Decoder(|config, hyper, b| {
        let rope = rope::read_with(config, hyper, "full_attention", 150_000.0, false)?;
        let shape = Shape { limits: Some(limits(config)?), rope: Some(rope), ..Shape::default() };
        shape.graph(config, hyper, b)
    }),
};

fn hyper(config: &Config) -> Result<Hyper> {
    let mut hyper = Hyper::read(config, |width| width)?;
    hyper.slide(config, |layer| layer % 2 == 0)?;
    Ok(hyper)
}

fn limits(config: &Config) -> Result<Limits> {
    let limit = config.number(&["swiglu_limit"])?.unwrap_or(7.0) as f32;
    Ok(Limits { limit, slope: config.number(&["swiglu_alpha"])?.unwrap_or(1.702) as f32 })
}

const OWN: [Rule; 8] = [
    whole("blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks"),
    whole("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"),
    across("blk.{}.ffn_gate_exp.{}.weight", "model.layers.{}.mlp.experts.gate_up_proj", 2, 0),
    across("blk.{}.ffn_up_exp.{}.weight", "model.layers.{}.mlp.experts.gate_up_proj", 2, 1),
    across("blk.{}.ffn_down_exp.{}.weight", "model.layers.{}.mlp.experts.down_proj", 1, 0),
    across("blk.{}.ffn_gate_exp.{}.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", 2, 0),
    across("blk.{}.ffn_up_exp.{}.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", 2, 1),
    across("blk.{}.ffn_down_exp.{}.bias", "model.layers.{}.mlp.experts.down_proj_bias", 1, 0),
];

const RULES: [Rule; OWN.len() + LLAMA_RULES.len()] = rules::joined(&OWN, LLAMA_RULES);

const GGUF_RULES: [Rule; 1 + experts::STACKED.len()] =
    rules::joined(&[whole("blk.{}.ffn_norm", "blk.{}.post_attention_norm")], &experts::STACKED);

const fn across(name: &'static str, source: &'static str, of: usize, part: usize) -> Rule {
    taken(name, source, Take::StackedAcross { of, part })
}
