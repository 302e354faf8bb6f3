//! OLMo 2: norms after each block, queries and keys normalised over all heads.

use super::blocks::{self, block, whole};
use super::llama::feed_forward;
use super::{Family, Form, Hyper, Rule, hyper, rope};
use crate::Error;
use crate::graph::{ActivationKind, Builder, NormKind, ValueId};

pub(super) static FAMILY: Family = Family {
    name: "olmo2",
    hugging_face: &["olmo2"],
    gguf: &["olmo2"],
    hugging_face_rules: RULES,
    gguf_rules: &[
        whole("blk.{}.ffn_post_norm", "blk.{}.post_ffw_norm"),
        whole("blk.{}.attn_post_norm", "blk.{}.post_attention_norm"),
    ],
    hyper: |config| {
        if config.count(&["attention.sliding_window"])?.is_some_and(|window| window > 0) {
            let message = "layers with a window, as those of OLMo 3, are not known";
            return Err(Error::unsupported("config.attention.sliding_window", message));
        }
        Hyper::read(config, |width| 4 * width)
    },
    form: Form::Decoder(|config, h, mut b| {
        let activation = hyper::activation(config, ActivationKind::Silu)?;
        let rope = b.rope_table(rope::read(config, h)?);
        let mut x = b.embed("token_embd.weight", h.vocabulary, h.width);
        for layer in 0..h.layers {
            let attended = attend(&mut b, h, layer, rope, x);
            let attended = b.rms_norm(attended, &block(layer, "attn_post_norm"), h.epsilon);
            x = b.add(x, attended);
            let fed = feed_forward(&mut b, h, layer, activation, x);
            let fed = b.rms_norm(fed, &block(layer, "ffn_post_norm"), h.epsilon);
            x = b.add(x, fed);
        }
        let logits = blocks::logits(&mut b, h, NormKind::Rms, x);
        Ok(b.finish(logits))
    }),
};

const RULES: &[Rule] = &[
    whole("token_embd", "model.embed_tokens"),
    whole("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    whole("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    whole("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    whole("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    whole("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    whole("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    whole("blk.{}.attn_post_norm", "model.layers.{}.post_attention_layernorm"),
    whole("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    whole("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    whole("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    whole("blk.{}.ffn_post_norm", "model.layers.{}.post_feedforward_layernorm"),
    whole("output_norm", "model.norm"),
    whole("output", "lm_head"),
];

fn attend(b: &mut Builder<'_>, h: &Hyper, layer: usize, rope: usize, x: ValueId) -> ValueId {
    let (q, k, v) = blocks::queries_keys_values(b, h, layer, x);
    let q = b.rms_norm(q, &block(layer, "attn_q_norm"), h.epsilon);
    let k = b.rms_norm(k, &block(layer, "attn_k_norm"), h.epsilon);
    let q = b.rope(q, rope, h.head_size);
    let k = b.rope(k, rope, h.head_size);
    let attended = b.attention(q, k, v, blocks::attention(h, layer));
    b.linear(attended, &block(layer, "attn_output"), h.width)
}
