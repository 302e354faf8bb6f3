//! Granite with experts, one of which every row goes through.

use super::blocks::{taken, whole};
use super::{Family, Form, Rule, Take, granite, granite_moe, rules};

pub(super) static FAMILY: Family = Family {
    name: "granitemoeshared",
    hugging_face: &["granitemoeshared"],
    gguf: &[],
    hugging_face_rules: &RULES,
    gguf_rules: &[],
    hyper: granite::FAMILY.hyper,
    form: Form::Decoder(granite::graph),
};

const OWN: [Rule; 3] = [
    taken("blk.{}.ffn_gate_shexp.weight", "model.layers.{}.shared_mlp.input_linear.weight", Take::Chunk(0)),
    taken("blk.{}.ffn_up_shexp.weight", "model.layers.{}.shared_mlp.input_linear.weight", Take::Chunk(1)),
    whole("blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"),
];

const RULES: [Rule; OWN.len() + granite_moe::RULES.len()] = rules::joined(&OWN, &granite_moe::RULES);
