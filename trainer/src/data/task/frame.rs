//! What stands around a text.

use siskin::tokenizer::{EncodeOptions, Tokenizer};
use siskin::{Error, Result};

/// Special tokens before and after each text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Those before.
    pub before: Vec<u32>,
    /// Those after.
    pub after: Vec<u32>,
}

impl Frame {
    /// What a tokenizer puts around a text.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self> {
        let encode = |add_special| tokenizer.encode("a", EncodeOptions { add_special, parse_special: false });
        let (whole, inner) = (encode(true)?, encode(false)?);
        let start = whole.windows(inner.len().max(1)).position(|part| part == inner).unwrap_or(0);
        Ok(Self {
            before: whole[..start].to_vec(),
            after: whole.get(start + inner.len()..).unwrap_or_default().to_vec(),
        })
    }

    /// How many tokens it has.
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Whether nothing stands around texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A text in its frame.
    pub fn around(&self, text: &[u32]) -> Vec<u32> {
        [&self.before, text, &self.after].concat()
    }

    /// The tokens of a text that a frame of `length` has room for.
    pub(super) fn room(&self, length: usize) -> Result<usize> {
        length.checked_sub(self.len()).filter(|&room| room > 0).ok_or_else(|| {
            let message = format!("{length}, but {} tokens stand around each text; give more", self.len());
            Error::argument("length", message)
        })
    }
}
