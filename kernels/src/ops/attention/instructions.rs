//! The instructions that an attention kernel uses.

/// Vectors, and better integer dot products than theirs if there are any.
#[derive(Clone, Copy)]
pub(super) struct Instructions<S, D> {
    pub vectors: S,
    pub dots: Option<D>,
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
