//! The arena: one allocation for all activations of a plan.

use std::cell::UnsafeCell;
use std::ops::Range;

use siskin_format::{Error, ErrorKind, Result};

use crate::plan::BufferView;

/// A cache line of f32 words, so that rows are aligned to cache lines.
#[repr(C, align(64))]
struct Line(UnsafeCell<[f32; 16]>);

/// The memory behind the views of a plan.
pub(crate) struct Arena {
    lines: Box<[Line]>,
}

/// An arena or a part of it, shared by the workers of the thread pool.
#[derive(Clone, Copy)]
pub(crate) struct ArenaView<'a> {
    lines: &'a [Line],
}

// SAFETY: the contents are accessed only by the unsafe methods of `ArenaView`, which require that no thread writes what
// another accesses.
unsafe impl Sync for Line {}

impl Arena {
    /// Allocates `words` zeroed words.
    pub(crate) fn new(words: usize) -> Result<Self> {
        let count = words.div_ceil(16);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| {
            Error::new(
                ErrorKind::Memory,
                "arena",
                format!("cannot allocate {} MiB for activations; use a smaller batch", words >> 18),
            )
        })?;
        lines.resize_with(count, || Line(UnsafeCell::new([0.0; 16])));
        Ok(Self { lines: lines.into_boxed_slice() })
    }

    /// Returns the allocated bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * 64
    }

    /// Returns the bytes that `words` words take.
    pub(crate) fn bytes_of(words: usize) -> usize {
        words.div_ceil(16).saturating_mul(64)
    }

    /// Returns a view of the whole arena.
    pub(crate) fn room(&self) -> ArenaView<'_> {
        ArenaView { lines: &self.lines }
    }
}

impl<'a> ArenaView<'a> {
    /// Returns the cache lines that cover these words as a view of its own; its offsets count from the start of the
    /// first line.
    pub(crate) fn room(self, words: Range<usize>) -> Self {
        Self { lines: &self.lines[words.start / 16..words.end.div_ceil(16)] }
    }

    /// Returns a pointer to word `offset`.
    pub(crate) fn pointer(self, offset: usize) -> *mut f32 {
        assert!(offset <= self.lines.len() * 16, "beyond the arena");
        // SAFETY: the word lies inside the arena or one past its end; the cells may be written through their pointer.
        unsafe { self.lines.as_ptr().cast::<f32>().cast_mut().add(offset) }
    }

    fn part(self, offset: usize, count: usize) -> *mut f32 {
        assert!(offset + count <= self.lines.len() * 16, "beyond the arena");
        self.pointer(offset)
    }

    /// Returns the viewed columns of a row.
    ///
    /// # Safety
    /// No thread may write them while the slice is alive.
    pub(crate) unsafe fn row(self, view: BufferView, row: usize) -> &'a [f32] {
        // SAFETY: `part` checks the bounds, and no thread writes the row while the slice is alive (see `# Safety`).
        unsafe {
            std::slice::from_raw_parts(self.part(view.offset + row * view.stride, view.columns), view.columns)
        }
    }

    /// Returns the viewed columns of a row for writing.
    ///
    /// # Safety
    /// No other thread may access them while the slice is alive.
    pub(crate) unsafe fn row_mut(self, view: BufferView, row: usize) -> &'a mut [f32] {
        let start = self.part(view.offset + row * view.stride, view.columns);
        // SAFETY: `part` checks the bounds, and no other thread accesses the row meanwhile (see `# Safety`).
        unsafe { std::slice::from_raw_parts_mut(start, view.columns) }
    }

    /// Returns the viewed columns of a row for writing, as integer words.
    ///
    /// # Safety
    /// No other thread may access them while the slice is alive.
    pub(crate) unsafe fn words_mut(self, view: BufferView, row: usize) -> &'a mut [i32] {
        let start = self.part(view.offset + row * view.stride, view.columns);
        // SAFETY: as above; f32 and i32 have the same size and alignment, and all bits are valid for both.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), view.columns) }
    }

    /// Returns `rows` rows as one slice, which has no gaps if `view.columns == view.stride`.
    ///
    /// # Safety
    /// No thread may write them while the slice is alive.
    pub(crate) unsafe fn rows(self, view: BufferView, rows: usize) -> &'a [f32] {
        let count = rows.checked_sub(1).map_or(0, |last| last * view.stride + view.columns);
        // SAFETY: `part` checks the bounds, and no thread writes the rows while the slice is alive (see `# Safety`).
        unsafe { std::slice::from_raw_parts(self.part(view.offset, count), count) }
    }

    /// Returns `rows` rows as one slice of integer words.
    ///
    /// # Safety
    /// As for [`ArenaView::rows`].
    pub(crate) unsafe fn word_rows(self, view: BufferView, rows: usize) -> &'a [i32] {
        // SAFETY: no thread writes the rows while the slice is alive (see `# Safety`).
        let floats = unsafe { self.rows(view, rows) };
        // SAFETY: f32 and i32 have the same size and alignment, and all bits are valid for both.
        unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), floats.len()) }
    }
}
