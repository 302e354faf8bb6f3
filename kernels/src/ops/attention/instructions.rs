//! The instructions that an attention kernel uses.

/// Vectors, and better instructions for integers than theirs if there are any.
#[derive(Clone, Copy)]
pub(super) struct Instructions<S, D, M> {
    pub vectors: S,
    pub dots: Option<D>,
    /// Matrix products, for several queries over an int14 cache.
    pub matrices: Option<M>,
}

/// Expands `$body` with the best integer dot products.
macro_rules! with_dots {
    ($instructions:expr, |$d:ident| $body:expr) => {
        match $instructions.dots {
            Some($d) => $body,
            None => {
                let $d = $instructions.vectors;
                $body
            }
        }
    };
}
pub(super) use with_dots;

/// Expands `$body` with matrix products if there are any, else as [`with_dots!`].
macro_rules! with_matrices {
    ($instructions:expr, |$d:ident| $body:expr) => {
        match $instructions.matrices {
            Some($d) => $body,
            None => with_dots!($instructions, |$d| $body),
        }
    };
}
pub(super) use with_matrices;
