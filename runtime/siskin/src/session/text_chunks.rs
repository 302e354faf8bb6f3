//! Iterator over the text of a generation.

use super::{FinishReason, Generation, Session};
use crate::{Error, Result};

/// The text of a generation, in chunks of whole characters.
pub struct TextChunks<'a> {
    session: &'a mut Session,
    generation: Generation,
    /// An error that is returned after the text that was held back.
    failed: Option<Error>,
}

impl Iterator for TextChunks<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut text = String::new();
        loop {
            match self.generation.step(self.session, &mut text) {
                Ok(Some(_)) if text.is_empty() => {}
                Ok(Some(_)) => return Some(Ok(text)),
                Ok(None) => return self.failed.take().map(Err),
                Err(error) => {
                    self.generation.rest(&mut text);
                    if text.is_empty() {
                        return Some(Err(error));
                    }
                    self.failed = Some(error);
                    return Some(Ok(text));
                }
            }
        }
    }
}

impl<'a> TextChunks<'a> {
    pub(super) fn new(session: &'a mut Session, generation: Generation) -> Self {
        Self { session, generation, failed: None }
    }

    /// Returns the number of tokens generated so far.
    pub fn tokens(&self) -> usize {
        self.generation.tokens()
    }

    /// Returns the finish reason, once the generation has ended.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.generation.finish_reason()
    }
}

impl Drop for TextChunks<'_> {
    fn drop(&mut self) {
        self.generation.leave(self.session);
    }
}
