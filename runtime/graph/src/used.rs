//! The weights that an operation uses.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation is a compile error here")]

use super::{Op, Recurrence, WeightId};

impl Op {
    /// Calls `change` with each weight that the operation uses.
    pub fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        match self {
            Self::Embed { table } | Self::EmbedSegment { table } | Self::EmbedPosition { table, .. } => {
                change(table);
            }
            Self::Norm { weight, bias, .. } => {
                change(weight);
                bias.iter_mut().for_each(change);
            }
            Self::Linear { parts } => {
                for (weight, bias) in parts {
                    change(weight);
                    bias.iter_mut().for_each(&mut *change);
                }
            }
            Self::ExpertLinear { weights, biases, .. } => weights.iter_mut().chain(biases).for_each(change),
            Self::Attention(attention) | Self::StoreCrossKv(attention) => {
                let bias = attention.bias.iter_mut().map(|bias| &mut bias.table);
                let mixed = attention.projection.iter_mut();
                let mixed = mixed.flat_map(|projection| [&mut projection.keys, &mut projection.values]);
                bias.chain(&mut attention.sinks).chain(mixed).for_each(change);
            }
            Self::DecayGate { log, bias } => [log, bias].into_iter().for_each(change),
            Self::Affine { weight, bias } => [weight, bias].into_iter().for_each(change),
            Self::CausalConv1d { weight, .. } => change(weight),
            Self::EmbedSine { .. }
            | Self::Features
            | Self::ExternalInput
            | Self::Im2col { .. }
            | Self::Route(_)
            | Self::Dispatch(_)
            | Self::Combine(_)
            | Self::SliceColumns { .. }
            | Self::Rope { .. }
            | Self::Activate(_)
            | Self::Gate(_)
            | Self::GateLimited(_)
            | Self::RepeatColumns(_)
            | Self::L2Normalize { .. }
            | Self::LinearAttention(Recurrence { .. })
            | Self::Add
            | Self::Scale(_)
            | Self::Softcap(_)
            | Self::Clamp(_)
            | Self::SelectOutputs => {}
        }
    }

    /// Returns the weights that the operation uses.
    pub fn weights(&self) -> Vec<WeightId> {
        let mut named = Vec::new();
        self.clone().each_weight(&mut |weight| named.push(*weight));
        named
    }
}
