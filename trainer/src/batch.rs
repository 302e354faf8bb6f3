//! The input of a step: concatenated sequences without padding.

use std::ops::Range;

/// A token and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// The index of its sequence.
    pub sequence: usize,
    /// Its position in the sequence.
    pub position: usize,
    /// The token id.
    pub token: u32,
    /// The segment of its sequence that it is in.
    pub segment: u32,
    /// Whether it is marked, for attention masks with marked tokens.
    pub marked: bool,
}

/// A sequence of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSequence {
    /// Its rows.
    pub rows: Range<usize>,
    /// The length of its prefix, which attends in both directions (prefix LM).
    pub bidirectional_prefix: usize,
    /// Its frames of external features; empty: none.
    pub frames: Range<usize>,
}

/// The sequences of one side of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSequences {
    /// All tokens, sequence by sequence.
    pub rows: Vec<BatchRow>,
    /// The sequences, in the order of their rows.
    pub sequences: Vec<BatchSequence>,
    /// The output rows: the rows that go to the head.
    pub output_rows: Vec<usize>,
    /// External input features, frame by frame.
    pub features: Vec<f32>,
}

impl BatchSequences {
    /// Appends a sequence with one segment per token, or none.
    pub fn push(&mut self, tokens: &[u32], segments: &[u32]) {
        let (first, sequence) = (self.rows.len(), self.sequences.len());
        self.rows.extend(tokens.iter().enumerate().map(|(position, &token)| BatchRow {
            sequence,
            position,
            token,
            segment: segments.get(position).copied().unwrap_or(0),
            marked: false,
        }));
        self.sequences.push(BatchSequence { rows: first..self.rows.len(), ..BatchSequence::default() });
    }

    /// Iterates over the rows of each sequence.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = &Range<usize>> + Clone {
        self.sequences.iter().map(|sequence| &sequence.rows)
    }

    /// Returns the length of the longest sequence.
    pub fn max_length(&self) -> usize {
        self.spans().map(ExactSizeIterator::len).max().unwrap_or(0)
    }

    /// Makes all rows output rows.
    pub fn output_all(&mut self) {
        self.output_rows = (0..self.rows.len()).collect();
    }

    /// Returns the number of frames.
    pub fn frame_count(&self) -> usize {
        self.sequences.last().map_or(0, |last| last.frames.end)
    }
}

/// Encoder and decoder sequences. Decoder sequence n attends to encoder sequence n.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainingBatch {
    /// The encoder's.
    pub encoder: BatchSequences,
    /// The decoder's.
    pub decoder: BatchSequences,
}
