//! The text of a generation, piece by piece.

use super::{GenerateOptions, Session};
use crate::template::Message;
use crate::text::TextStream;
use crate::{Error, Result};

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The model ended its text.
    Model,
    /// One of the texts of [`SessionOptions::stop`](super::SessionOptions::stop) came.
    StopText,
    /// There are as many tokens as were wanted.
    Length,
    /// The context is full.
    Context,
}

/// The text of a generation, in pieces of whole characters.
pub struct Pieces<'a> {
    session: &'a mut Session,
    stream: TextStream,
    bytes: Vec<u8>,
    answer: String,
    tokens: usize,
    options: GenerateOptions,
    /// A token that was given out and has not gone through the model.
    last: Option<u32>,
    ended: Option<Ended>,
    /// An error that is told after the text that was held back.
    failed: Option<Error>,
    done: bool,
}

impl Iterator for Pieces<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let text = match self.step() {
                Ok(text) => text,
                Err(error) => {
                    self.done = true;
                    self.failed = Some(error);
                    self.stream.finish().text.to_owned()
                }
            };
            if !text.is_empty() {
                self.answer.push_str(&text);
                return Some(Ok(text));
            }
        }
        self.failed.take().map(Err)
    }
}

impl<'a> Pieces<'a> {
    pub(super) fn new(session: &'a mut Session, stream: TextStream, options: GenerateOptions) -> Self {
        Self {
            session,
            stream,
            bytes: Vec::new(),
            answer: String::new(),
            tokens: 0,
            options,
            last: None,
            ended: None,
            failed: None,
            done: false,
        }
    }

    /// Tokens generated so far.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Why the generation ended, once it has.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The text of one more token, or what was held back at the end.
    fn step(&mut self) -> Result<String> {
        if self.tokens == self.options.max_tokens {
            return Ok(self.end(Ended::Length));
        }
        if let Some(last) = self.last {
            if self.session.position() == super::locked(&self.session.context).most_tokens() {
                return Ok(self.end(Ended::Context));
            }
            self.session.prefill(&[last])?;
            self.last = None;
        }
        let Some(token) = self.session.choose()? else { return Ok(self.end(Ended::Model)) };
        self.last = Some(token.id);
        self.tokens += 1;
        self.bytes.clear();
        self.session.model.tokenizer()?.piece_into(token.id, false, &mut self.bytes)?;
        let step = self.stream.push(&self.bytes);
        if step.stopped {
            self.done = true;
            self.ended = Some(Ended::StopText);
        }
        Ok(step.text.to_owned())
    }

    fn end(&mut self, ended: Ended) -> String {
        self.done = true;
        self.ended = Some(ended);
        self.stream.finish().text.to_owned()
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        if self.options.raw {
            self.session.unread = self.last;
        } else {
            self.session.messages.push(Message::new("assistant", &self.answer));
        }
    }
}
