//! The buffers of a plan. Planning records the steps in which each is live; the arena planner computes offsets from
//! these.

use siskin_device::{ArenaPlan, BufferLifetime};

/// A buffer of the plan: its number, and where it starts.
#[derive(Clone, Copy)]
pub(super) struct PlannedBuffer {
    number: usize,
    /// Words from the start of the arena.
    pub offset: usize,
}

/// The buffers of a plan. A graph is planned twice with the same result but for the offsets: the first time records
/// lifetimes, and buffers do not share memory; the second time uses the offsets that follow from the lifetimes.
#[derive(Default)]
pub(super) struct Buffers {
    lifetimes: Vec<BufferLifetime>,
    /// Words of the buffers so far.
    words: usize,
    /// The offsets, the second time.
    arena: Option<ArenaPlan>,
}

impl Buffers {
    /// Returns the buffers of the second time.
    pub(super) fn with_offsets(&self) -> Self {
        Self { arena: Some(ArenaPlan::new(&self.lifetimes)), ..Self::default() }
    }

    /// Returns a buffer of `words` words that is live from step `step` until it is released.
    pub(super) fn allocate(&mut self, words: usize, step: usize) -> PlannedBuffer {
        // Buffers start at cache lines.
        let size = words.next_multiple_of(16).max(16);
        let number = self.lifetimes.len();
        self.lifetimes.push(BufferLifetime { steps: step..usize::MAX, size });
        let recorded = self.words;
        self.words = self.words.saturating_add(size);
        let offset = self.arena.as_ref().map_or(recorded, |arena| arena.ranges[number].start);
        PlannedBuffer { number, offset }
    }

    /// Ends the lifetime of a buffer after step `last`: the rows of a step run in parallel, so that a buffer is not
    /// reused within the step that reads it.
    pub(super) fn release(&mut self, buffer: PlannedBuffer, last: usize) {
        self.lifetimes[buffer.number].steps.end = last + 1;
    }

    /// Returns the size of the arena in words.
    pub(super) fn arena_words(&self) -> usize {
        self.arena.as_ref().map_or(self.words, |arena| arena.size)
    }
}
