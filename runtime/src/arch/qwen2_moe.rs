//! Qwen2 with experts, one of which every row goes through.

use super::blocks::LLAMA_RULES;
use super::llama::Shape;
use super::{Family, Form, Rule, experts, qwen2, rules};

pub(super) static FAMILY: Family = Family {
    name: "qwen2moe",
    hugging_face: &["qwen2_moe"],
    gguf: &["qwen2moe"],
    hugging_face_rules: &RULES,
    gguf_rules: &experts::STACKED,
    hyper: qwen2::hyper,
    form: Form::Decoder(|config, hyper, b| {
        Shape { normalises: false, ..Shape::default() }.graph(config, hyper, b)
    }),
};

const EXPERTS: [Rule; experts::QWEN_RULES.len() + experts::SHARED_RULES.len()] =
    rules::joined(&experts::QWEN_RULES, &experts::SHARED_RULES);

const RULES: [Rule; EXPERTS.len() + LLAMA_RULES.len()] = rules::joined(&EXPERTS, LLAMA_RULES);
