//! Which words of the arena are taken while a plan is made.

/// A place that a buffer takes in the arena.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub offset: usize,
    words: usize,
}

/// Gives out places and takes them back.
#[derive(Default)]
pub(super) struct Places {
    taken: Vec<Place>,
    end: usize,
}

impl Places {
    /// The lowest gap of `words`.
    pub(super) fn take(&mut self, words: usize) -> Place {
        // Places are told apart by their offsets: none is empty.
        let words = words.next_multiple_of(16).max(16);
        let mut offset = 0;
        for place in &self.taken {
            if offset + words <= place.offset {
                break;
            }
            offset = offset.max(place.offset + place.words);
        }
        let place = Place { offset, words };
        let at = self.taken.partition_point(|other| other.offset < offset);
        self.taken.insert(at, place);
        self.end = self.end.max(offset + words);
        place
    }

    pub(super) fn give_back(&mut self, place: Place) {
        self.taken.retain(|other| other.offset != place.offset);
    }

    /// The words up to the end of the last place that was ever taken.
    pub(super) fn end(&self) -> usize {
        self.end
    }
}
