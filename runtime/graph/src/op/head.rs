//! What may follow the last layer of a decoder: its head.

use super::Op;

/// What an operation may be in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRole {
    /// No part of a head.
    Outside,
    /// Part of a head: each row of its output depends on the same row of its inputs alone.
    RowWise,
    /// Row-wise, and may be the LM head: its output is the logits.
    Logits,
    /// Row-wise, and may change the logits.
    AfterLogits,
}

impl Op {
    /// Returns what the operation may be in a head. [`HeadRole::Outside`] never gives wrong results: training then takes
    /// more memory, and embedding models made from decoders with the operation after their LM head are rejected.
    pub fn head_role(&self) -> HeadRole {
        match self {
            Self::Linear(_) => HeadRole::Logits,
            Self::Scale(_) | Self::Softcap(_) => HeadRole::AfterLogits,
            Self::Norm(_)
            | Self::Activate(_)
            | Self::Gate(_)
            | Self::SliceColumns(_)
            | Self::Add(_)
            | Self::Affine(_)
            | Self::MultiLora(_)
            | Self::Clamp(_) => HeadRole::RowWise,
            Self::Embed(_)
            | Self::EmbedSegment(_)
            | Self::EmbedPosition(_)
            | Self::SinusoidalPositions(_)
            | Self::InputFeatures(_)
            | Self::ExternalInput(_)
            | Self::Im2col(_)
            | Self::L2Normalize(_)
            | Self::Route(_)
            | Self::Dispatch(_)
            | Self::ExpertLinear(_)
            | Self::Combine(_)
            | Self::RepeatColumns(_)
            | Self::SelectOutputs(_)
            | Self::Rope(_)
            | Self::Attention(_)
            | Self::StoreCrossKv(_)
            | Self::DecayGate(_)
            | Self::CausalConv1d(_)
            | Self::LinearAttention(_)
            | Self::ClampedGate(_) => HeadRole::Outside,
        }
    }
}
