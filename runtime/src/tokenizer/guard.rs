//! Encodes text of which parts come from strangers, such as a prompt that a chat template made of messages.

use super::Tokenizer;
use super::encode::{EncodeOptions, Scratch, Untrusted};
use crate::Result;
use std::ops::Range;

impl Tokenizer {
    /// The ids of `text`, where no control token may overlap one of the ranges `untrusted`, which are in bytes, ascend
    /// and do not overlap.
    pub fn encode_guarded(
        &self,
        text: &str,
        untrusted: &[Range<usize>],
        options: EncodeOptions,
    ) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encode_range(text, 0..text.len(), untrusted, options, &mut ids)?;
        Ok(ids)
    }

    /// Appends the ids of a range of `text`, encoded as if tokens of its own stood before and behind it.
    pub(crate) fn encode_range(
        &self,
        text: &str,
        range: Range<usize>,
        untrusted: &[Range<usize>],
        options: EncodeOptions,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut tokens = Vec::new();
        let (text, untrusted) = (&text[..range.end], Untrusted(untrusted));
        self.text(text, range.start, untrusted, options, true, &mut Scratch::default(), &mut tokens)?;
        ids.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }
}
