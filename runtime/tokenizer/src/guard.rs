//! Encoding of partly untrusted text, such as a prompt that a chat template rendered from messages.

use super::Tokenizer;
use super::encode::{EncodeOptions, EncodeScratch, Untrusted};
use siskin_format::Result;
use std::ops::Range;

impl Tokenizer {
    /// Encodes `text` so that no control token overlaps one of the byte ranges `untrusted`, which must be in ascending
    /// order and must not overlap.
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

    /// Appends the ids of a range of `text`, encoded as if it were preceded and followed by separate tokens.
    pub fn encode_range(
        &self,
        text: &str,
        range: Range<usize>,
        untrusted: &[Range<usize>],
        options: EncodeOptions,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut tokens = Vec::new();
        let (text, untrusted) = (&text[..range.end], Untrusted(untrusted));
        self.text(text, range.start, untrusted, options, true, &mut EncodeScratch::default(), &mut tokens)?;
        ids.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }
}
