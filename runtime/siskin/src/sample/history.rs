//! The last tokens as one contiguous slice, without allocating.

/// The last `limit` tokens, oldest first.
#[derive(Debug)]
pub(crate) struct TokenHistory {
    limit: usize,
    ids: Vec<u32>,
}

impl TokenHistory {
    /// Creates an empty history with capacity for `limit` tokens.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ids: Vec::with_capacity(limit.saturating_mul(2)) }
    }

    /// Appends `id` and returns the token that left the window.
    pub(crate) fn push(&mut self, id: u32) -> Option<u32> {
        let lost = if self.ids.len() >= self.limit { self.window().first().copied() } else { None };
        if self.ids.len() == 2 * self.limit {
            self.ids.copy_within(self.limit.., 0);
            self.ids.truncate(self.limit);
        }
        self.ids.push(id);
        lost
    }

    /// Returns the tokens in the window, oldest first.
    pub(crate) fn window(&self) -> &[u32] {
        &self.ids[self.ids.len().saturating_sub(self.limit)..]
    }

    /// Returns a copy with the same capacity.
    pub(crate) fn fork(&self) -> Self {
        let mut copy = Self::new(self.limit);
        copy.ids.extend_from_slice(&self.ids);
        copy
    }

    /// Removes all tokens.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slides_without_growing() {
        let mut history = TokenHistory::new(3);
        let capacity = history.ids.capacity();
        assert_eq!(history.push(0), None);
        for id in 1..100 {
            assert_eq!(history.push(id), id.checked_sub(3));
            let expected: Vec<u32> = (id.saturating_sub(2)..=id).collect();
            assert_eq!(history.window(), expected);
        }
        assert_eq!(history.ids.capacity(), capacity);
        history.clear();
        assert!(history.window().is_empty());
    }
}
