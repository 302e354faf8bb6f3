//! The MoE feed-forward block: a router selects the top-k experts for each row.

use super::blocks::{block, taken, whole};
use super::{ConfigReader, ModelConfig, TensorRule, TensorTransform};
use crate::{ActivationFunction, Builder, GateLimits, Routing, ValueId};
use siskin_format::{Error, ErrorKind, Result};

/// Sanity limits for untrusted files: routing time grows with both.
const MAX_EXPERTS: usize = 4096;
const MAX_TOP_K: usize = 64;

/// Tensor map of stacked experts in GGUF: one tensor holds all experts of a layer.
pub(super) const STACKED: [TensorRule; 3] = [
    taken!("blk.{}.ffn_gate_exp.{}", "blk.{}.ffn_gate_exps", TensorTransform::Stacked { of: 1, part: 0 }),
    taken!("blk.{}.ffn_up_exp.{}", "blk.{}.ffn_up_exps", TensorTransform::Stacked { of: 1, part: 0 }),
    taken!("blk.{}.ffn_down_exp.{}", "blk.{}.ffn_down_exps", TensorTransform::Stacked { of: 1, part: 0 }),
];

/// Tensor map of the shared expert in Qwen's models.
pub(super) const SHARED_RULES: [TensorRule; 4] = [
    whole!("blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"),
    whole!("blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"),
    whole!("blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"),
    whole!("blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"),
];

/// Tensor map of experts in Qwen's models and their derivatives.
pub(super) const QWEN_RULES: [TensorRule; 4] = [
    whole!("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    whole!("blk.{}.ffn_gate_exp.{}", "model.layers.{}.mlp.experts.{}.gate_proj"),
    whole!("blk.{}.ffn_up_exp.{}", "model.layers.{}.mlp.experts.{}.up_proj"),
    whole!("blk.{}.ffn_down_exp.{}", "model.layers.{}.mlp.experts.{}.down_proj"),
];

/// Returns the routing of a layer, or `None` if it has no router. `normalize` is the default for whether the weights of
/// the selected experts are normalized to a sum of 1.
pub(super) fn routing(
    config: &ConfigReader,
    b: &Builder<'_>,
    layer: usize,
    normalize: bool,
) -> Result<Option<Routing>> {
    if !b.has(&block(layer, "ffn_gate_inp.weight")) {
        return Ok(None);
    }
    read_routing(config, normalize).map(Some)
}

/// Reads the routing from the configuration; `normalize` is the default.
fn read_routing(config: &ConfigReader, normalize: bool) -> Result<Routing> {
    let experts = config.required(&["num_local_experts", "num_experts", "expert_count"])?;
    let top_k = config.required(&["num_experts_per_tok", "expert_used_count"])?;
    check(experts, top_k)?;
    let normalize = config.flag(&["norm_topk_prob", "expert_weights_norm"])?.unwrap_or(normalize);
    Ok(Routing { experts, top_k, normalize, capacity: None })
}

/// Rejects numbers beyond the limits.
pub(super) fn check(experts: usize, top_k: usize) -> Result<()> {
    if experts > MAX_EXPERTS || top_k > experts.min(MAX_TOP_K) {
        let message = format!("cannot select {top_k} of {experts} experts");
        return Err(Error::corrupt("config.num_experts_per_tok", message));
    }
    Ok(())
}

/// Rejects a layer with a missing expert, before a list of all experts is allocated.
fn check_all(b: &Builder<'_>, experts: usize, name: &dyn Fn(usize) -> String) -> Result<()> {
    match (0..experts).map(name).find(|name| !b.has(name)) {
        Some(name) => {
            let message = format!("missing, but the configuration has {experts} experts");
            Err(Error::new(ErrorKind::Missing, format!("tensor {name}"), message))
        }
        None => Ok(()),
    }
}

/// The gating of an expert's MLP.
#[derive(Clone, Copy)]
pub(super) enum ExpertGate {
    /// Ungated: `activation(up)`.
    Absent(ActivationFunction),
    /// `activation(gate) · up`.
    Plain(ActivationFunction),
    /// With clamping.
    Limited(GateLimits),
}

/// The gated MLPs of the selected experts, combined, plus the shared expert if there is one.
pub(super) fn feed_forward(
    b: &mut Builder<'_>,
    config: &ConfigReader,
    h: &ModelConfig,
    layer: usize,
    gating: ExpertGate,
    routing: Routing,
    x: ValueId,
) -> Result<ValueId> {
    let width =
        config.count(&["moe_intermediate_size", "expert_feed_forward_length"])?.unwrap_or(h.feed_forward);
    let name = |part: &str| block(layer, part);
    let chosen = mixture(b, &name, gating, routing, (width, h.width), x)?;
    Ok(match (gating, b.has(&block(layer, "ffn_down_shexp.weight"))) {
        (ExpertGate::Plain(activation), true) => {
            let shared = shared_expert(b, config, h, layer, activation, x)?;
            b.add(chosen, shared)
        }
        _ => chosen,
    })
}

/// The MLPs of the selected experts, combined. `widths` are the expert's inner width and the hidden size.
pub(super) fn mixture(
    b: &mut Builder<'_>,
    name: &dyn Fn(&str) -> String,
    gating: ExpertGate,
    routing: Routing,
    widths: (usize, usize),
    x: ValueId,
) -> Result<ValueId> {
    let named = |part: &'static str| move |expert: usize| name(&format!("{part}.{expert}.weight"));
    let (gate, up, down) = (named("ffn_gate_exp"), named("ffn_up_exp"), named("ffn_down_exp"));
    check_all(b, routing.experts, &down)?;
    let scores = b.linear(x, &name("ffn_gate_inp"), routing.experts);
    let routed = b.route(scores, routing);
    let slots = b.dispatch(x, routed, routing);
    let inner = match gating {
        ExpertGate::Absent(activation) => {
            let up = b.expert_linear(slots, routed, routing, &up, widths.0);
            b.activate(activation, up)
        }
        ExpertGate::Plain(activation) => {
            let gate = b.expert_linear(slots, routed, routing, &gate, widths.0);
            let up = b.expert_linear(slots, routed, routing, &up, widths.0);
            b.gate(activation, gate, up)
        }
        ExpertGate::Limited(limits) => {
            let gate = b.expert_linear(slots, routed, routing, &gate, widths.0);
            let up = b.expert_linear(slots, routed, routing, &up, widths.0);
            b.clamped_gate(limits, gate, up)
        }
    };
    let outer = b.expert_linear(inner, routed, routing, &down, widths.1);
    Ok(b.combine(outer, routed, routing))
}

/// The shared expert: a gated MLP for all rows, scaled by a sigmoid gate if the source has one.
fn shared_expert(
    b: &mut Builder<'_>,
    config: &ConfigReader,
    h: &ModelConfig,
    layer: usize,
    activation: ActivationFunction,
    x: ValueId,
) -> Result<ValueId> {
    let width = config
        .count(&[
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "expert_shared_feed_forward_length",
        ])?
        .unwrap_or(h.feed_forward);
    let gate = b.linear(x, &block(layer, "ffn_gate_shexp"), width);
    let up = b.linear(x, &block(layer, "ffn_up_shexp"), width);
    let gated = b.gate(activation, gate, up);
    let down = b.linear(gated, &block(layer, "ffn_down_shexp"), h.width);
    if !b.has(&block(layer, "ffn_gate_inp_shexp.weight")) {
        return Ok(down);
    }
    let weight = b.linear(x, &block(layer, "ffn_gate_inp_shexp"), 1);
    let weight = b.repeat_columns(weight, h.width);
    Ok(b.gate(ActivationFunction::Sigmoid, weight, down))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_lacks_is_not_listed() {
        assert!(check(8, 2).is_ok() && check(1, 1).is_ok());
        for (experts, top_k) in [(4, 5), (5000, 1), (4096, 4096), (1 << 31, 1)] {
            assert!(check(experts, top_k).is_err(), "{top_k} of {experts}");
        }
        let has = |name: &str| name.ends_with(".0.weight");
        let name = |expert: usize| format!("blk.3.ffn_down_exp.{expert}.weight");
        assert!(check_all(&Builder::new(&has), 1, &name).is_ok());
        let error = check_all(&Builder::new(&has), 2, &name).unwrap_err();
        assert!(error.to_string().contains("blk.3.ffn_down_exp.1.weight"));
    }
}
