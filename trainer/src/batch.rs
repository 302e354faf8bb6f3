//! The input of a step: sequences of encoder and decoder.

pub use siskin_graph::{BatchRow, BatchSequence, BatchSequences};

/// Encoder and decoder sequences. Decoder sequence n attends to encoder sequence n.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingBatch {
    /// The encoder's.
    pub encoder: BatchSequences,
    /// The decoder's.
    pub decoder: BatchSequences,
}
