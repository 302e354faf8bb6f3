//! An allocator that counts the allocations of each thread.
//!
//! A test binary installs it with `#[global_allocator]` and measures code with [`measure`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static USAGE: Cell<Usage> = const { Cell::new(Usage { count: 0, live: 0, peak: 0, largest: 0 }) };
}

/// Allocations of one thread since the start of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of allocations, including reallocations that grow.
    pub count: usize,
    /// Live bytes. Negative if the code freed memory that was allocated earlier.
    pub live: isize,
    /// Peak of live bytes.
    pub peak: isize,
    /// The largest single request in bytes.
    pub largest: usize,
}

/// The system allocator with counters per thread.
#[derive(Debug)]
pub struct Counting;

fn note(grown: usize, freed: usize) {
    // A thread that is ending has no counters left; its frees do not matter to any measurement.
    let _ = USAGE.try_with(|cell| {
        let mut usage = cell.get();
        usage.live += grown as isize - freed as isize;
        if grown > 0 {
            usage.count += 1;
            usage.peak = usage.peak.max(usage.live);
            usage.largest = usage.largest.max(grown);
        }
        cell.set(usage);
    });
}

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract; the counters are
// plain cells that never allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller upholds `GlobalAlloc::alloc` for this layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller upholds `GlobalAlloc::alloc_zeroed` for this layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller got `pointer` from this allocator, hence from the system's, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller got `pointer` from this allocator, hence from the system's, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work` and returns the allocations of this thread in it.
///
/// All counts are zero if [`Counting`] is not the global allocator.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Usage) {
    USAGE.with(|cell| cell.set(Usage::default()));
    let result = work();
    (result, USAGE.with(Cell::get))
}
