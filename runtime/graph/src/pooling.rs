//! Pooling methods of sentence embeddings.

/// How the hidden states of a text are pooled into one vector.
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
}
