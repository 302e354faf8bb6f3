//! Text in which special tokens count in some places only: what strangers write stands beside what the model's
//! template writes.

use super::encode::{EncodeOptions, Guards, Scratch};
use super::{Token, Tokenizer};
use crate::Result;
use std::collections::HashSet;
use std::ops::Range;

impl Tokenizer {
    /// Where `text` becomes other tokens, in bytes, when control tokens are read out of it: empty where it spells none.
    pub fn control_spans(&self, text: &str) -> Result<Vec<Range<usize>>> {
        let options = EncodeOptions { add_special: false, parse_special: true };
        let tokens = self.encode_with_offsets(text, options)?;
        let plain = self.encode_with_offsets(text, EncodeOptions { parse_special: false, ..options })?;
        let place = |token: &Token| (token.id, token.start, token.end);
        let plain: HashSet<_> = plain.iter().map(place).collect();
        let only_here = tokens.iter().filter(|token| !plain.contains(&place(token)));
        Ok(only_here.map(|token| token.start as usize..token.end as usize).collect())
    }

    /// The ids of `text`, where no control token may span one of the places `guards`, which ascend.
    pub fn encode_guarded(&self, text: &str, guards: &[usize], options: EncodeOptions) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.encode_within(text, Guards(guards), options, &mut Scratch::default(), &mut tokens)?;
        Ok(tokens.iter().map(|token| token.id).collect())
    }
}
