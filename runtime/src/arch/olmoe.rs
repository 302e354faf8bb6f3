//! OLMoE: Llama with experts, and queries and keys normalised as a whole.

use super::blocks::LLAMA_RULES;
use super::llama::Shape;
use super::{Family, Form, Hyper, Rule, experts, rules};

pub(super) static FAMILY: Family = Family {
    name: "olmoe",
    hugging_face: &["olmoe"],
    gguf: &["olmoe"],
    hugging_face_rules: &RULES,
    gguf_rules: &experts::STACKED,
    hyper: |config| Hyper::read(config, |width| 4 * width),
    form: Form::Decoder(|config, hyper, b| {
        let clamp = config.number(&["clip_qkv", "attention.clamp_kqv"])?.map(|limit| limit as f32);
        Shape { row_norm: true, normalises: false, clamp, ..Shape::default() }.graph(config, hyper, b)
    }),
};

const RULES: [Rule; experts::QWEN_RULES.len() + LLAMA_RULES.len()] =
    rules::joined(&experts::QWEN_RULES, LLAMA_RULES);
