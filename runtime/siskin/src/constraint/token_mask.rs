//! Sets of tokens.

/// A set of tokens, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
    vocabulary_size: usize,
}

impl TokenMask {
    /// Creates an empty set over a vocabulary.
    pub fn new(vocabulary_size: usize) -> Self {
        Self { words: vec![0; vocabulary_size.div_ceil(32)], vocabulary_size }
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds a token. Ids outside the vocabulary are ignored.
    pub fn allow(&mut self, token: u32) {
        if (token as usize) < self.vocabulary_size {
            self.words[token as usize / 32] |= 1 << (token % 32);
        }
    }

    /// Adds all tokens.
    pub fn allow_all(&mut self) {
        self.words.fill(u32::MAX);
        self.trim();
    }

    /// Removes a token.
    pub fn forbid(&mut self, token: u32) {
        if let Some(word) = self.words.get_mut(token as usize / 32) {
            *word &= !(1 << (token % 32));
        }
    }

    /// Adds the tokens whose bits are set, 32 per word, the lowest bit first. Bits beyond the vocabulary are ignored.
    pub fn allow_words(&mut self, words: &[u32]) {
        for (word, more) in self.words.iter_mut().zip(words) {
            *word |= more;
        }
        self.trim();
    }

    /// Removes the bits beyond the vocabulary.
    fn trim(&mut self) {
        if let Some(last) = self.words.last_mut() {
            let used = self.vocabulary_size % 32;
            *last &= if used == 0 { u32::MAX } else { (1 << used) - 1 };
        }
    }

    /// Returns whether a token is in the set.
    pub fn allows(&self, token: u32) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Returns the number of tokens in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Sets the scores of tokens that are not in the set to negative infinity.
    pub(super) fn apply(&self, scores: &mut [f32]) {
        for (scores, &word) in scores.chunks_mut(32).zip(&self.words) {
            let masked = scores.iter_mut().enumerate().filter(|(bit, _)| word >> bit & 1 == 0);
            masked.for_each(|(_, score)| *score = f32::NEG_INFINITY);
        }
    }
}
