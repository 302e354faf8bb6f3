//! Pooling: one vector from the hidden states of a text.

use super::TextOutputs;
use crate::context::OutputRows;

/// How the hidden states of a text are pooled to one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    #[default]
    Mean,
    /// The first token (CLS).
    First,
    /// The last token.
    Last,
    /// The maximum of each column.
    Max,
    /// The mean with weights 1, 2, 3, … from the first token on.
    Weighted,
}

impl Pooling {
    /// Each method with its name.
    pub const NAMES: &[(Self, &str)] = &[
        (Self::Mean, "mean"),
        (Self::First, "cls"),
        (Self::Last, "last"),
        (Self::Max, "max"),
        (Self::Weighted, "weighted"),
    ];

    /// Returns the output rows that the method needs.
    pub(super) fn wanted(self) -> OutputRows<'static> {
        match self {
            Self::First => OutputRows::First,
            Self::Last => OutputRows::Last,
            Self::Mean | Self::Max | Self::Weighted => OutputRows::All,
        }
    }

    /// Returns the pooled vector; sums run in token order, column by column.
    pub(super) fn pool(self, outputs: TextOutputs<'_>) -> Vec<f32> {
        let mut rows = outputs.rows();
        let mut pooled = rows.next().unwrap_or_default().to_vec();
        for (index, row) in rows.enumerate() {
            for (sum, x) in pooled.iter_mut().zip(row) {
                *sum = match self {
                    Self::Max => sum.max(*x),
                    Self::Weighted => *sum + (index + 2) as f32 * x,
                    Self::Mean | Self::First | Self::Last => *sum + x,
                };
            }
        }
        let count = outputs.count();
        let whole = match self {
            Self::Mean => count,
            Self::Weighted => count * (count + 1) / 2,
            Self::First | Self::Last | Self::Max => 1,
        };
        pooled.iter_mut().for_each(|sum| *sum /= whole as f32);
        pooled
    }
}
