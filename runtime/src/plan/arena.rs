//! One block of memory for all activations of a plan.

use std::cell::UnsafeCell;
use std::ops::Range;

use crate::{Error, ErrorKind, Result};

use super::View;

/// A line of the cache, so that rows begin on one.
#[repr(C, align(64))]
struct Line(UnsafeCell<[f32; 16]>);

/// Words for the views of a plan.
pub(crate) struct Arena {
    lines: Box<[Line]>,
}

/// An arena or a part of it, shared by the workers of a team.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    lines: &'a [Line],
}

// SAFETY: all access goes through unsafe methods whose callers keep parts apart.
unsafe impl Sync for Line {}

impl Arena {
    /// Zeroed memory of `words`.
    pub(crate) fn new(words: usize) -> Result<Self> {
        let count = words.div_ceil(16);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| {
            Error::new(
                ErrorKind::Memory,
                "arena",
                format!("{} MiB are not to be had; lower the batch", words >> 18),
            )
        })?;
        lines.resize_with(count, || Line(UnsafeCell::new([0.0; 16])));
        Ok(Self { lines: lines.into_boxed_slice() })
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * 64
    }

    /// Bytes that `words` would take.
    pub(crate) fn bytes_of(words: usize) -> usize {
        words.div_ceil(16).saturating_mul(64)
    }

    /// All of it.
    pub(crate) fn room(&self) -> Room<'_> {
        Room { lines: &self.lines }
    }
}

impl<'a> Room<'a> {
    /// The lines that hold some words, as a room of its own: its words count from the first of them, which begins a line.
    pub(crate) fn room(self, words: Range<usize>) -> Self {
        Self { lines: &self.lines[words.start / 16..words.end.div_ceil(16)] }
    }

    /// A pointer to word `offset`.
    pub(crate) fn pointer(self, offset: usize) -> *mut f32 {
        assert!(offset <= self.lines.len() * 16, "beyond the arena");
        // SAFETY: the word lies inside the arena or just behind it; cells may be written through their pointer.
        unsafe { self.lines.as_ptr().cast::<f32>().cast_mut().add(offset) }
    }

    fn part(self, offset: usize, count: usize) -> *mut f32 {
        assert!(offset + count <= self.lines.len() * 16, "beyond the arena");
        self.pointer(offset)
    }

    /// Columns of a row.
    ///
    /// # Safety
    /// Nobody may write them meanwhile.
    pub(crate) unsafe fn row(self, view: View, row: usize) -> &'a [f32] {
        // SAFETY: `part` checks the bounds; the caller keeps writers away.
        unsafe {
            std::slice::from_raw_parts(self.part(view.offset + row * view.stride, view.columns), view.columns)
        }
    }

    /// Columns of a row, for writing.
    ///
    /// # Safety
    /// Nobody else may use them meanwhile.
    pub(crate) unsafe fn row_mut(self, view: View, row: usize) -> &'a mut [f32] {
        let start = self.part(view.offset + row * view.stride, view.columns);
        // SAFETY: `part` checks the bounds; the caller is alone with the part.
        unsafe { std::slice::from_raw_parts_mut(start, view.columns) }
    }

    /// Columns of a row, for writing as words.
    ///
    /// # Safety
    /// Nobody else may use them meanwhile.
    pub(crate) unsafe fn words_mut(self, view: View, row: usize) -> &'a mut [i32] {
        let start = self.part(view.offset + row * view.stride, view.columns);
        // SAFETY: as above; f32 and i32 have the same size and alignment, and all bits are valid for both.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), view.columns) }
    }

    /// All of `rows` rows, which follow each other without gaps where `view.columns == view.stride`.
    ///
    /// # Safety
    /// Nobody may write them meanwhile.
    pub(crate) unsafe fn rows(self, view: View, rows: usize) -> &'a [f32] {
        let count = rows.checked_sub(1).map_or(0, |last| last * view.stride + view.columns);
        // SAFETY: `part` checks the bounds; the caller keeps writers away.
        unsafe { std::slice::from_raw_parts(self.part(view.offset, count), count) }
    }

    /// The same as words.
    ///
    /// # Safety
    /// As for [`Room::rows`].
    pub(crate) unsafe fn word_rows(self, view: View, rows: usize) -> &'a [i32] {
        // SAFETY: the caller's promise; f32 and i32 have the same size and alignment.
        let floats = unsafe { self.rows(view, rows) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), floats.len()) }
    }
}
