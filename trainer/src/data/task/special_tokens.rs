//! The special tokens around a text.

use siskin_format::{Error, Result};
use siskin_tokenizer::{EncodeOptions, Tokenizer};

/// Special tokens before and after each text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// The prefix.
    pub before: Vec<u32>,
    /// The suffix.
    pub after: Vec<u32>,
}

impl SpecialTokens {
    /// Returns the special tokens that a tokenizer adds.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self> {
        let encode = |add_special| tokenizer.encode("a", EncodeOptions { add_special, parse_special: false });
        let (whole, inner) = (encode(true)?, encode(false)?);
        let start = whole.windows(inner.len().max(1)).position(|part| part == inner).unwrap_or(0);
        Ok(Self {
            before: whole[..start].to_vec(),
            after: whole.get(start + inner.len()..).unwrap_or_default().to_vec(),
        })
    }

    /// Returns the number of special tokens.
    pub fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Returns true if there are no special tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a framed text.
    pub fn around(&self, text: &[u32]) -> Vec<u32> {
        [&self.before, text, &self.after].concat()
    }

    /// Returns the number of text tokens that fit a sequence of `length` rows.
    pub(super) fn max_content(&self, length: usize) -> Result<usize> {
        length.checked_sub(self.len()).filter(|&max_content| max_content > 0).ok_or_else(|| {
            let message =
                format!("{length} is too short for the {} special tokens of each text; raise it", self.len());
            Error::argument("max_length", message)
        })
    }
}
