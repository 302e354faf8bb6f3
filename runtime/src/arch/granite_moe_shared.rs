//! Granite with MoE and a shared expert.

use super::blocks::{taken, whole};
use super::{Family, TensorRule, TensorTransform, Topology, granite, granite_moe, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "granitemoeshared",
    hugging_face: &["granitemoeshared"],
    gguf: &[],
    hugging_face_rules: &RULES,
    gguf_rules: &[],
    hyper: granite::FAMILY.hyper,
    form: Topology::Decoder(granite::graph),
};

const OWN: [TensorRule; 3] = [
    taken(
        "blk.{}.ffn_gate_shexp.weight",
        "model.layers.{}.shared_mlp.input_linear.weight",
        TensorTransform::Chunk(0),
    ),
    taken(
        "blk.{}.ffn_up_shexp.weight",
        "model.layers.{}.shared_mlp.input_linear.weight",
        TensorTransform::Chunk(1),
    ),
    whole("blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"),
];

const RULES: [TensorRule; OWN.len() + granite_moe::RULES.len()] =
    tensor_map::joined(&OWN, &granite_moe::RULES);
