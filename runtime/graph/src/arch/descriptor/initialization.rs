//! Random initialization of a family's tensors.

use crate::Weight;
use crate::arch::ModelConfig;

/// The tensors of a model that is created without a file, and the distribution of their initial values.
#[derive(Clone, Copy)]
pub struct Initialization {
    /// Tensor names: `{}` stands for the layer index, `{side}` for `enc` and `dec`, and a name without `.weight` and
    /// `.bias` for both. Empty: the family cannot be initialized.
    pub tensors: &'static [&'static str],
    /// Parts of the names of vectors that are random like matrices; other vectors are norms and biases.
    pub vectors: &'static [&'static str],
    /// The standard deviation of a tensor's initial values.
    pub deviation: fn(&Weight, &ModelConfig) -> f64,
}

impl Initialization {
    /// A family that cannot be initialized.
    pub const NONE: Self = Self { tensors: &[], vectors: &[], deviation: |_, _| 0.02 };
}

/// The tensors of Llama and of families with the same graph.
pub(in crate::arch) const LLAMA_TENSORS: &[&str] = &[
    "token_embd.weight",
    "blk.{}.attn_norm.weight",
    "blk.{}.attn_q.weight",
    "blk.{}.attn_k.weight",
    "blk.{}.attn_v.weight",
    "blk.{}.attn_output.weight",
    "blk.{}.ffn_norm.weight",
    "blk.{}.ffn_gate.weight",
    "blk.{}.ffn_up.weight",
    "blk.{}.ffn_down.weight",
    "output_norm.weight",
];

/// GPT-2's deviation: that of projections into the residual stream falls with the number of layers.
pub(in crate::arch) fn falling_with_depth(weight: &Weight, model_config: &ModelConfig) -> f64 {
    let adds = ["attn_output.", "ffn_down.", "out_proj."].iter().any(|name| weight.name.contains(name));
    if adds { 0.02 / (2.0 * model_config.layers as f64).sqrt() } else { 0.02 }
}
