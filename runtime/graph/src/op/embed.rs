//! Embeddings of tokens, segments and positions.

use super::{Operands, Operation};
use crate::types::{ValueShape, WeightId};

/// Token embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embed {
    /// V × D.
    pub table: WeightId,
}

/// Segment embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedSegment {
    /// Segments × D.
    pub table: WeightId,
}

/// Learned position embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedPosition {
    /// Positions × D.
    pub table: WeightId,
    /// Added to the position before the lookup.
    pub offset: usize,
}

/// Sinusoidal position embeddings: sines, then cosines of the angles of a RoPE table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinusoidalPositions {
    /// Index into [`Graph::ropes`](crate::Graph::ropes).
    pub rope: usize,
    /// Added to the position.
    pub offset: usize,
}

/// Implements [`Operation`] for lookups in a table, one row of it for each row of the batch.
macro_rules! table_lookups {
    ($($name:ident),*) => {$(
        impl Operation for $name {
            fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
                change(&mut self.table);
            }

            fn input_counts(&self) -> &'static [usize] {
                &[0]
            }

            fn output(&self, operands: &Operands<'_>) -> ValueShape {
                operands.with_columns(operands.weights[self.table].columns)
            }
        }
    )*};
}

table_lookups!(Embed, EmbedSegment, EmbedPosition);

impl Operation for SinusoidalPositions {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn input_counts(&self) -> &'static [usize] {
        &[0]
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(2 * operands.ropes[self.rope].frequencies.len())
    }
}
