//! Text under rewriting with offsets: which range of the input every byte came from.

use super::fallible_alloc;
use siskin_format::{Error, Result};
use std::ops::Range;

/// Text, and for each byte the range of the input that it came from (only if tracked).
///
/// Text beyond the maximum length is dropped, and [`Aligned::check`] returns an error.
#[derive(Clone, Debug, Default)]
pub(super) struct Aligned {
    pub(super) text: String,
    starts: Vec<u32>,
    ends: Vec<u32>,
    track: bool,
    /// The maximum length of the text, in bytes.
    max_bytes: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Whole,
    Grown,
    OutOfMemory,
}

impl Aligned {
    /// Clears the text. `track` enables offsets; `max_bytes` is the maximum length.
    pub(super) fn reset(&mut self, track: bool, max_bytes: usize) {
        self.text.clear();
        self.starts.clear();
        self.ends.clear();
        (self.track, self.max_bytes, self.state) = (track, max_bytes, State::Whole);
    }

    /// Replaces the text by `text`, which starts at `base` of the input.
    pub(super) fn fill(&mut self, text: &str, base: usize, track: bool, max_bytes: usize) {
        self.reset(track, max_bytes);
        if !self.make_room(text.len()) {
            return;
        }
        self.text.push_str(text);
        if track {
            self.starts.extend((base..base + text.len()).map(|at| at as u32));
            self.ends.extend((base..base + text.len()).map(|at| at as u32 + 1));
        }
    }

    /// Returns an error if text was dropped.
    pub(super) fn check(&self) -> Result<()> {
        match self.state {
            State::Whole => Ok(()),
            State::Grown => {
                Err(Error::corrupt("tokenizer.normalizer", "normalization makes the text grow too much"))
            }
            State::OutOfMemory => Err(fallible_alloc::short()),
        }
    }

    /// Reserves memory for `bytes` more bytes. If that fails, all later text is dropped.
    #[inline]
    fn make_room(&mut self, bytes: usize) -> bool {
        if !matches!(self.state, State::Whole) {
            return false;
        }
        if bytes > self.max_bytes.saturating_sub(self.text.len()) {
            self.state = State::Grown;
            return false;
        }
        let marks = if self.track { bytes } else { 0 };
        let has_room = self.text.try_reserve(bytes).is_ok()
            && self.starts.try_reserve(marks).is_ok()
            && self.ends.try_reserve(marks).is_ok();
        if !has_room {
            self.state = State::OutOfMemory;
        }
        has_room
    }

    pub(super) fn tracks(&self) -> bool {
        self.track
    }

    /// Returns the range of the input that the bytes in `range` came from.
    pub(super) fn source(&self, range: Range<usize>) -> (u32, u32) {
        let nearest = self.ends.get(range.start.saturating_sub(1)).copied().unwrap_or(0);
        let start = self.starts.get(range.start).copied().unwrap_or(nearest);
        let end = match range.is_empty() {
            true => start,
            false => self.ends.get(range.end - 1).copied().unwrap_or(start),
        };
        (start, end.max(start))
    }

    /// Appends `character`, which came from `source`.
    pub(super) fn push(&mut self, character: char, source: (u32, u32)) {
        if self.make_room(character.len_utf8()) {
            self.text.push(character);
            self.mark(character.len_utf8(), source);
        }
    }

    /// Appends `text`, all of which came from `source`.
    pub(super) fn push_str(&mut self, text: &str, source: (u32, u32)) {
        if self.make_room(text.len()) {
            self.text.push_str(text);
            self.mark(text.len(), source);
        }
    }

    fn mark(&mut self, bytes: usize, (start, end): (u32, u32)) {
        if self.track {
            self.starts.extend(std::iter::repeat_n(start, bytes));
            self.ends.extend(std::iter::repeat_n(end, bytes));
        }
    }

    /// Appends the bytes in `range` of `other`, unchanged.
    pub(super) fn copy(&mut self, other: &Self, range: Range<usize>) {
        if !self.make_room(range.len()) {
            return;
        }
        self.text.push_str(other.text.get(range.clone()).unwrap_or_default());
        if self.track {
            self.starts.extend_from_slice(other.starts.get(range.clone()).unwrap_or_default());
            self.ends.extend_from_slice(other.ends.get(range).unwrap_or_default());
        }
    }
}
