//! What goes through a model in one step: texts side by side, nothing padded.

use std::ops::Range;

/// A token and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of its text.
    pub text: usize,
    /// Its position there.
    pub position: usize,
    /// Which token.
    pub token: u32,
    /// The segment of the text that it is in.
    pub segment: u32,
}

/// The texts of one side of a model.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// All tokens, text by text.
    pub rows: Vec<Row>,
    /// The rows of each text.
    pub spans: Vec<Range<usize>>,
    /// The rows whose output goes on to the head.
    pub wanted: Vec<usize>,
    /// The first positions of each text that see each other both ways; empty: none.
    pub prefixes: Vec<usize>,
    /// Which rows are marked, for models that mark tokens; empty: none.
    pub marked: Vec<bool>,
    /// What rows are made of that are no tokens, frame by frame.
    pub features: Vec<f32>,
    /// The frames of each text.
    pub frames: Vec<Range<usize>>,
}

impl Texts {
    /// Appends a text with one segment for each token, or none.
    pub fn push(&mut self, tokens: &[u32], segments: &[u32]) {
        let (first, text) = (self.rows.len(), self.spans.len());
        self.rows.extend(tokens.iter().enumerate().map(|(position, &token)| Row {
            text,
            position,
            token,
            segment: segments.get(position).copied().unwrap_or(0),
        }));
        self.spans.push(first..self.rows.len());
    }

    /// Wants the outputs of all rows.
    pub fn want_all(&mut self) {
        self.wanted = (0..self.rows.len()).collect();
    }

    /// How many frames there are.
    pub fn frame_count(&self) -> usize {
        self.frames.last().map_or(0, |last| last.end)
    }
}

/// The texts that are read at once, and those that are written token by token. Text n of the second is written with a
/// view of text n of the first.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Of the encoder.
    pub reader: Texts,
    /// Of the decoder.
    pub writer: Texts,
}
