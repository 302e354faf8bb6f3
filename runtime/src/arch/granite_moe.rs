//! Granite with MoE.

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES, taken, whole};
use super::{Family, TensorRule, TensorTransform, Topology, experts, granite, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "granitemoe",
    hugging_face: &["granitemoe"],
    gguf: &["granitemoe"],
    hugging_face_rules: &RULES,
    gguf_rules: &GGUF_RULES,
    hyper: granite::FAMILY.hyper,
    form: Topology::Decoder(granite::graph),
};

const GGUF_RULES: [TensorRule; LLAMA_GGUF_RULES.len() + experts::STACKED.len()] =
    tensor_map::joined(LLAMA_GGUF_RULES, &experts::STACKED);

const OWN: [TensorRule; 4] = [
    whole("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"),
    taken(
        "blk.{}.ffn_gate_exp.{}",
        "model.layers.{}.block_sparse_moe.input_linear",
        TensorTransform::Stacked { of: 2, part: 0 },
    ),
    taken(
        "blk.{}.ffn_up_exp.{}",
        "model.layers.{}.block_sparse_moe.input_linear",
        TensorTransform::Stacked { of: 2, part: 1 },
    ),
    taken(
        "blk.{}.ffn_down_exp.{}",
        "model.layers.{}.block_sparse_moe.output_linear",
        TensorTransform::Stacked { of: 1, part: 0 },
    ),
];

pub(super) const RULES: [TensorRule; OWN.len() + LLAMA_RULES.len()] = tensor_map::joined(&OWN, LLAMA_RULES);
