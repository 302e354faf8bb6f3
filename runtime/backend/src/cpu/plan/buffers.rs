//! The arena allocator, a first-fit allocator: assigns offsets at planning time and reuses them once a value is dead.

/// The words of the arena that a buffer occupies.
#[derive(Clone, Copy)]
pub(super) struct ArenaRange {
    pub offset: usize,
    words: usize,
}

/// Allocates and frees ranges of words.
#[derive(Default)]
pub(super) struct Places {
    taken: Vec<ArenaRange>,
    end: usize,
}

impl Places {
    /// Allocates the lowest gap of at least `words` words.
    pub(super) fn take(&mut self, words: usize) -> ArenaRange {
        // Allocations are identified by their offsets, so none may be empty.
        let words = words.next_multiple_of(16).max(16);
        let mut offset = 0;
        for place in &self.taken {
            if offset + words <= place.offset {
                break;
            }
            offset = offset.max(place.offset + place.words);
        }
        let place = ArenaRange { offset, words };
        let at = self.taken.partition_point(|other| other.offset < offset);
        self.taken.insert(at, place);
        self.end = self.end.max(offset + words);
        place
    }

    pub(super) fn give_back(&mut self, place: ArenaRange) {
        self.taken.retain(|other| other.offset != place.offset);
    }

    /// Returns the peak size in words.
    pub(super) fn end(&self) -> usize {
        self.end
    }
}
