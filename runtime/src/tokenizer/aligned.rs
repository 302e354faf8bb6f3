//! Text under rewriting that remembers which part of the input every byte came from.

use std::ops::Range;

/// Text, and per byte the range of the input it stands for (only where that is asked for).
#[derive(Clone, Debug, Default)]
pub(super) struct Aligned {
    pub(super) text: String,
    starts: Vec<u32>,
    ends: Vec<u32>,
    track: bool,
}

impl Aligned {
    /// Empties the text; `track` says whether to remember where bytes come from.
    pub(super) fn reset(&mut self, track: bool) {
        self.text.clear();
        self.starts.clear();
        self.ends.clear();
        self.track = track;
    }

    /// Fills in `text`, which lies at `base` of the input.
    pub(super) fn fill(&mut self, text: &str, base: usize, track: bool) {
        self.reset(track);
        self.text.push_str(text);
        if track {
            self.starts.extend((base..base + text.len()).map(|at| at as u32));
            self.ends.extend((base..base + text.len()).map(|at| at as u32 + 1));
        }
    }

    pub(super) fn tracks(&self) -> bool {
        self.track
    }

    /// The range of the input that the bytes in `range` stand for.
    pub(super) fn source(&self, range: Range<usize>) -> (u32, u32) {
        let nearest = self.ends.get(range.start.saturating_sub(1)).copied().unwrap_or(0);
        let start = self.starts.get(range.start).copied().unwrap_or(nearest);
        let end = match range.is_empty() {
            true => start,
            false => self.ends.get(range.end - 1).copied().unwrap_or(start),
        };
        (start, end.max(start))
    }

    /// Appends `character`, which stands for `source`.
    pub(super) fn push(&mut self, character: char, source: (u32, u32)) {
        self.text.push(character);
        self.mark(character.len_utf8(), source);
    }

    /// Appends `text`, all of which stands for `source`.
    pub(super) fn push_str(&mut self, text: &str, source: (u32, u32)) {
        self.text.push_str(text);
        self.mark(text.len(), source);
    }

    fn mark(&mut self, bytes: usize, (start, end): (u32, u32)) {
        if self.track {
            self.starts.extend(std::iter::repeat_n(start, bytes));
            self.ends.extend(std::iter::repeat_n(end, bytes));
        }
    }

    /// Appends the bytes in `range` of `other`, unchanged.
    pub(super) fn copy(&mut self, other: &Self, range: Range<usize>) {
        self.text.push_str(other.text.get(range.clone()).unwrap_or_default());
        if self.track {
            self.starts.extend_from_slice(other.starts.get(range.clone()).unwrap_or_default());
            self.ends.extend_from_slice(other.ends.get(range).unwrap_or_default());
        }
    }
}
