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
}

/// The sequences of one side of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSequences {
    /// All tokens, sequence by sequence.
    pub rows: Vec<BatchRow>,
    /// The rows of each sequence.
    pub spans: Vec<Range<usize>>,
    /// The output rows: the rows that go to the head.
    pub output_rows: Vec<usize>,
    /// The length of each sequence's prefix, which attends in both directions (prefix LM); empty: none.
    pub prefixes: Vec<usize>,
    /// Which rows are marked, for attention masks with marked tokens; empty: none.
    pub marked: Vec<bool>,
    /// External input features, frame by frame.
    pub features: Vec<f32>,
    /// The frames of each sequence.
    pub frames: Vec<Range<usize>>,
}

impl BatchSequences {
    /// Appends a sequence with one segment per token, or none.
    pub fn push(&mut self, tokens: &[u32], segments: &[u32]) {
        let (first, text) = (self.rows.len(), self.spans.len());
        self.rows.extend(tokens.iter().enumerate().map(|(position, &token)| BatchRow {
            sequence: text,
            position,
            token,
            segment: segments.get(position).copied().unwrap_or(0),
        }));
        self.spans.push(first..self.rows.len());
    }

    /// Makes all rows output rows.
    pub fn output_all(&mut self) {
        self.output_rows = (0..self.rows.len()).collect();
    }

    /// Returns the number of frames.
    pub fn frame_count(&self) -> usize {
        self.frames.last().map_or(0, |last| last.end)
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
