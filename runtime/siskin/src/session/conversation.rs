//! The messages of a session, with the tokens of those that the model generated.

use siskin_chat_template::{Message, UntrustedSpan};
use std::ops::Range;

/// A message of the conversation.
#[derive(Clone, Debug)]
pub(super) struct ConversationMessage {
    pub(super) message: Message,
    /// The tokens of the content, if the model generated it. They are reused in later prompts unchanged: encoding the
    /// same text could give tokens that differ from those in the KV cache.
    pub(super) generated: Option<Generated>,
}

impl ConversationMessage {
    /// Creates a turn of a message that the caller passed.
    pub(super) fn given(message: Message) -> Self {
        Self { message, generated: None }
    }

    /// Messages that came from outside, the assistant's included: what follows must not depend on what was generated
    /// before.
    pub(super) fn all(messages: &[Message]) -> Vec<Self> {
        messages.iter().cloned().map(Self::given).collect()
    }
}

/// Generated tokens, and the end of each in the decoded text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Generated {
    pub(super) ids: Vec<u32>,
    /// The end of each token's text, in bytes. A token that holds only part of a character ends before that
    /// character.
    pub(super) ends: Vec<usize>,
}

impl Generated {
    pub(super) fn push(&mut self, id: u32, end: usize) {
        self.ids.push(id);
        self.ends.push(end);
    }

    /// Returns the tokens of the first `length` bytes: all tokens if these bytes are the `complete` text, otherwise
    /// those with text that end at or before `length`.
    pub(super) fn first(&self, length: usize, complete: bool) -> Self {
        let mut first = self.clone();
        if complete {
            // Bytes of incomplete characters are decoded at the end of the text.
            first.ends.iter_mut().for_each(|end| *end = (*end).min(length));
            first.ends.last_mut().into_iter().for_each(|end| *end = length);
            return first;
        }
        let count = self.ends.partition_point(|&end| end <= length);
        let text = self.ends[..count].last().copied().unwrap_or(0);
        let count = if text == 0 { 0 } else { self.ends.partition_point(|&end| end < text) + 1 };
        first.ids.truncate(count);
        first.ends.truncate(count);
        first
    }

    /// Returns the longest run of whole tokens at the beginning of `range` of the text, and where it ends.
    fn run(&self, range: Range<usize>) -> Option<(&[u32], usize)> {
        let length = self.ends.last().copied().unwrap_or(0);
        let first = match range.start {
            0 => 0,
            // After the token whose text ends there.
            start => self
                .ends
                .binary_search(&start)
                .ok()
                .map(|_| self.ends.partition_point(|&end| end < start) + 1)?,
        };
        let last = match range.end {
            end if end >= length => self.ends.len(),
            end => {
                let within = self.ends.partition_point(|&own| own <= end);
                let text = self.ends[..within].last().copied().unwrap_or(0);
                self.ends.partition_point(|&own| own < text) + 1
            }
        };
        let ids = self.ids.get(first..last).filter(|ids| !ids.is_empty())?;
        Some((ids, self.ends[last - 1])).filter(|&(_, end)| end > range.start && end <= range.end)
    }
}

/// Finds the tokens of generated messages in a rendered prompt. Each token is used at most once, so that a template
/// cannot duplicate them.
pub(super) struct Generations<'t> {
    turns: &'t [ConversationMessage],
    /// How many bytes of each content were used.
    taken: Vec<usize>,
}

impl<'t> Generations<'t> {
    pub(super) fn new(turns: &'t [ConversationMessage]) -> Self {
        Self { turns, taken: vec![0; turns.len()] }
    }

    /// Returns the tokens that the model generated for the beginning of a span of the prompt, and where they end in the
    /// prompt.
    pub(super) fn take(&mut self, span: &UntrustedSpan) -> Option<(&'t [u32], usize)> {
        let source = span.source?;
        let generated = self.turns.get(source.message)?.generated.as_ref()?;
        let taken = self.taken.get_mut(source.message).filter(|taken| **taken <= source.offset)?;
        let (ids, end) = generated.run(source.offset..source.offset + span.range.len())?;
        *taken = end;
        Some((ids, span.range.start + end - source.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Hé` and ` wor`, a character that is split over two tokens, `ld`, and a token without text.
    fn generated() -> Generated {
        let mut generated = Generated::default();
        for (id, end) in [(10, 3), (11, 7), (12, 7), (13, 11), (14, 13), (15, 13)] {
            generated.push(id, end);
        }
        generated
    }

    #[test]
    fn runs_are_of_whole_tokens() {
        for (range, want) in [
            (0..13, Some((&[10, 11, 12, 13, 14, 15][..], 13))),
            (0..12, Some((&[10, 11, 12, 13], 11))),
            (0..7, Some((&[10, 11], 7))),
            (0..10, Some((&[10, 11], 7))),
            (3..13, Some((&[11, 12, 13, 14, 15], 13))),
            (7..11, Some((&[12, 13], 11))),
            (0..2, None),
            (1..13, None),
            (11..12, None),
        ] {
            assert_eq!(generated().run(range.clone()), want, "{range:?}");
        }
        assert_eq!(Generated::default().run(0..5), None);
    }

    #[test]
    fn a_text_that_was_cut_keeps_tokens_of_what_is_left() {
        assert_eq!(generated().first(13, true), generated());
        assert_eq!(generated().first(13, false).ids, [10, 11, 12, 13, 14]);
        assert_eq!(generated().first(10, false).ids, [10, 11]);
        assert_eq!(generated().first(2, false), Generated::default());
        let mut broken = generated();
        broken.push(16, 13);
        assert_eq!(broken.first(16, true).ends.last(), Some(&16));
    }
}
