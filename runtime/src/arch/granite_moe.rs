//! Granite with experts.

use super::blocks::{LLAMA_GGUF_RULES, LLAMA_RULES, taken, whole};
use super::{Family, Form, Rule, Take, experts, granite, rules};

pub(super) static FAMILY: Family = Family {
    name: "granitemoe",
    hugging_face: &["granitemoe"],
    gguf: &["granitemoe"],
    hugging_face_rules: &RULES,
    gguf_rules: &GGUF_RULES,
    hyper: granite::FAMILY.hyper,
    form: Form::Decoder(granite::graph),
};

const GGUF_RULES: [Rule; LLAMA_GGUF_RULES.len() + experts::STACKED.len()] =
    rules::joined(LLAMA_GGUF_RULES, &experts::STACKED);

const OWN: [Rule; 4] = [
    whole("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"),
    taken(
        "blk.{}.ffn_gate_exp.{}",
        "model.layers.{}.block_sparse_moe.input_linear",
        Take::Stacked { of: 2, part: 0 },
    ),
    taken(
        "blk.{}.ffn_up_exp.{}",
        "model.layers.{}.block_sparse_moe.input_linear",
        Take::Stacked { of: 2, part: 1 },
    ),
    taken(
        "blk.{}.ffn_down_exp.{}",
        "model.layers.{}.block_sparse_moe.output_linear",
        Take::Stacked { of: 1, part: 0 },
    ),
];

pub(super) const RULES: [Rule; OWN.len() + LLAMA_RULES.len()] = rules::joined(&OWN, LLAMA_RULES);
