//! Mixtral: Llama with MoE.

use super::blocks::{LLAMA_RULES, whole};
use super::llama::LlamaVariant;
use super::{Family, ModelConfig, TensorRule, Topology, tensor_map};

pub(super) static FAMILY: Family = Family {
    name: "mixtral",
    hugging_face: &["mixtral"],
    gguf: &[],
    hugging_face_rules: &RULES,
    gguf_rules: &[],
    hyper: |config| {
        let mut hyper = ModelConfig::read(config, |width| 4 * width)?;
        hyper.slide(config, |_| true)?;
        Ok(hyper)
    },
    form: Topology::Decoder(|config, hyper, b| LlamaVariant::default().graph(config, hyper, b)),
};

const OWN: [TensorRule; 4] = [
    whole("blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"),
    whole("blk.{}.ffn_gate_exp.{}", "model.layers.{}.block_sparse_moe.experts.{}.w1"),
    whole("blk.{}.ffn_up_exp.{}", "model.layers.{}.block_sparse_moe.experts.{}.w3"),
    whole("blk.{}.ffn_down_exp.{}", "model.layers.{}.block_sparse_moe.experts.{}.w2"),
];

const RULES: [TensorRule; OWN.len() + LLAMA_RULES.len()] = tensor_map::joined(&OWN, LLAMA_RULES);
