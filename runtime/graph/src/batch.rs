//! The rows that a graph is evaluated on: concatenated sequences without padding.

use std::ops::Range;

use crate::types::{RowCounts, RowKind};

/// A token and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// The index of its sequence.
    pub sequence: usize,
    /// Its position in the sequence.
    pub position: usize,
    /// The token id.
    pub token: u32,
    /// Its token type id.
    pub token_type: u32,
    /// Whether it is marked, for attention masks with marked tokens.
    pub marked: bool,
}

/// A sequence of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSequence {
    /// Its rows.
    pub rows: Range<usize>,
    /// The length of its prefix, which attends in both directions (prefix LM).
    pub prefix: usize,
    /// Its frames of external features; empty: none.
    pub frames: Range<usize>,
}

/// Whole sequences, one after the other.
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
    /// Appends a sequence with one token type per token, or none.
    pub fn push(&mut self, tokens: &[u32], token_types: &[u32]) {
        let (first, sequence) = (self.rows.len(), self.sequences.len());
        self.rows.extend(tokens.iter().enumerate().map(|(position, &token)| BatchRow {
            sequence,
            position,
            token,
            token_type: token_types.get(position).copied().unwrap_or(0),
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

    /// Returns the numbers of rows of each kind.
    pub fn row_counts(&self) -> RowCounts {
        RowCounts { tokens: self.rows.len(), outputs: self.output_rows.len(), frames: self.frame_count() }
    }

    /// Returns true if a row is marked.
    pub fn is_marked(&self, row: usize) -> bool {
        self.rows.get(row).is_some_and(|row| row.marked)
    }

    /// Returns the row of kind `from` at distance `offset` from the one that corresponds to row `row` of kind `to`;
    /// `None` beyond the ends of its sequence. `stride`: rows of kind `from` per row of kind `to`.
    pub fn neighbor(
        &self,
        from: RowKind,
        to: RowKind,
        row: usize,
        offset: isize,
        stride: usize,
    ) -> Option<usize> {
        let (span, center) = match (from, to) {
            (RowKind::Frames, RowKind::Frames) => {
                (self.sequences.iter().find(|sequence| sequence.frames.contains(&row))?.frames.clone(), row)
            }
            (RowKind::Frames, _) => {
                let place = self.rows.get(row)?;
                let span = self.sequences.get(place.sequence)?.frames.clone();
                let center = span.start + place.position * stride;
                (span, center)
            }
            _ => (self.sequences[self.rows.get(row)?.sequence].rows.clone(), row),
        };
        center.checked_add_signed(offset).filter(|other| span.contains(other))
    }
}
