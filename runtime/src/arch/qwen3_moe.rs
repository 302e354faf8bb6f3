//! Qwen3 with experts.

use super::blocks::LLAMA_RULES;
use super::llama::Shape;
use super::{Family, Form, Hyper, Rule, experts, rules};

pub(super) static FAMILY: Family = Family {
    name: "qwen3moe",
    hugging_face: &["qwen3_moe"],
    gguf: &["qwen3moe"],
    hugging_face_rules: &RULES,
    gguf_rules: &experts::STACKED,
    hyper: |config| Hyper::read(config, |width| 4 * width),
    form: Form::Decoder(|config, hyper, b| {
        Shape { head_norm: true, ..Shape::default() }.graph(config, hyper, b)
    }),
};

const RULES: [Rule; experts::QWEN_RULES.len() + LLAMA_RULES.len()] =
    rules::joined(&experts::QWEN_RULES, LLAMA_RULES);
