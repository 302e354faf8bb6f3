//! The feed-forward block of many experts, of which each row chooses some.

use super::blocks::{block, taken, whole};
use super::{Config, Hyper, Rule, Take};
use crate::graph::{ActivationKind, Builder, Routing, ValueId};
use crate::{Error, ErrorKind, Result};

/// Above these a file is hostile or from another age: the time of a choice grows with both.
const MOST_EXPERTS: usize = 4096;
const MOST_CHOSEN: usize = 64;

/// Where files of the families that llama.cpp knows keep experts: all of a layer in one tensor.
pub(super) const STACKED: [Rule; 3] = [
    taken("blk.{}.ffn_gate_exp.{}", "blk.{}.ffn_gate_exps", Take::Stacked { of: 1, part: 0 }),
    taken("blk.{}.ffn_up_exp.{}", "blk.{}.ffn_up_exps", Take::Stacked { of: 1, part: 0 }),
    taken("blk.{}.ffn_down_exp.{}", "blk.{}.ffn_down_exps", Take::Stacked { of: 1, part: 0 }),
];

/// The names of experts in Qwen's models and their kin.
pub(super) const QWEN_RULES: [Rule; 4] = [
    whole("blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"),
    whole("blk.{}.ffn_gate_exp.{}", "model.layers.{}.mlp.experts.{}.gate_proj"),
    whole("blk.{}.ffn_up_exp.{}", "model.layers.{}.mlp.experts.{}.up_proj"),
    whole("blk.{}.ffn_down_exp.{}", "model.layers.{}.mlp.experts.{}.down_proj"),
];

/// How the rows of a layer choose experts; nothing where it has none. `normalise` says whether the weights of the
/// chosen are brought to a sum of one where no key does.
pub(super) fn routing(
    config: &Config,
    b: &Builder<'_>,
    layer: usize,
    normalise: bool,
) -> Result<Option<Routing>> {
    if !b.has(&block(layer, "ffn_gate_inp.weight")) {
        return Ok(None);
    }
    chosen(config, normalise).map(Some)
}

/// How rows choose experts by the configuration; `normalise` where it does not say.
fn chosen(config: &Config, normalise: bool) -> Result<Routing> {
    let experts = config.required(&["num_local_experts", "num_experts", "expert_count"])?;
    let chosen = config.required(&["num_experts_per_tok", "expert_used_count"])?;
    check(experts, chosen)?;
    let normalise = config.flag(&["norm_topk_prob", "expert_weights_norm"])?.unwrap_or(normalise);
    Ok(Routing { experts, chosen, normalise, capacity: None })
}

/// Refuses numbers that no model has.
pub(super) fn check(experts: usize, chosen: usize) -> Result<()> {
    if experts > MOST_EXPERTS || chosen > experts.min(MOST_CHOSEN) {
        let message = format!("{chosen} of {experts} experts cannot be chosen");
        return Err(Error::corrupt("config.num_experts_per_tok", message));
    }
    Ok(())
}

/// Refuses a layer that lacks an expert, before there is a list of them all.
pub(super) fn check_all(b: &Builder<'_>, experts: usize, name: &dyn Fn(usize) -> String) -> Result<()> {
    match (0..experts).map(name).find(|name| !b.has(name)) {
        Some(name) => {
            let message = format!("it is missing, and the configuration has {experts} experts");
            Err(Error::new(ErrorKind::Missing, format!("tensor {name}"), message))
        }
        None => Ok(()),
    }
}

/// The gated block of each chosen expert, weighted and added up.
pub(super) fn feed_forward(
    b: &mut Builder<'_>,
    config: &Config,
    h: &Hyper,
    layer: usize,
    activation: ActivationKind,
    routing: Routing,
    x: ValueId,
) -> Result<ValueId> {
    let width =
        config.count(&["moe_intermediate_size", "expert_feed_forward_length"])?.unwrap_or(h.feed_forward);
    let name = |part: &'static str| move |expert: usize| block(layer, &format!("{part}.{expert}.weight"));
    check_all(b, routing.experts, &name("ffn_down_exp"))?;
    let scores = b.linear(x, &block(layer, "ffn_gate_inp"), routing.experts);
    let routed = b.route(scores, routing);
    let slots = b.dispatch(x, routed, routing);
    let gate = b.expert_linear(slots, routed, routing, &name("ffn_gate_exp"), width);
    let up = b.expert_linear(slots, routed, routing, &name("ffn_up_exp"), width);
    let gated = b.gate(activation, gate, up);
    let down = b.expert_linear(gated, routed, routing, &name("ffn_down_exp"), h.width);
    Ok(b.combine(down, routed, routing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_lacks_is_not_listed() {
        assert!(check(8, 2).is_ok() && check(1, 1).is_ok());
        for (experts, chosen) in [(4, 5), (5000, 1), (4096, 4096), (1 << 31, 1)] {
            assert!(check(experts, chosen).is_err(), "{chosen} of {experts}");
        }
        let has = |name: &str| name.ends_with(".0.weight");
        let name = |expert: usize| format!("blk.3.ffn_down_exp.{expert}.weight");
        assert!(check_all(&Builder::new(&has), 1, &name).is_ok());
        let error = check_all(&Builder::new(&has), 2, &name).unwrap_err();
        assert!(error.to_string().contains("blk.3.ffn_down_exp.1.weight"));
    }
}
