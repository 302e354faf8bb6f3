//! A text that is being written, step by step.

use super::turn::{Generated, Turn};
use super::{GenerateOptions, Session, Token};
use crate::template::Message;
use crate::text::TextStream;
use crate::{Error, ErrorKind, Result};

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

/// What a step of a generation brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A token. The text that it makes certain may be empty: characters are given whole, and what may begin a stop
    /// text waits.
    Token(Token),
    /// No token, but text that was held back until the end.
    Rest,
}

/// A text that a session is writing, begun by [`Session::begin`]; [`Pieces`](super::Pieces) is the iterator over it.
///
/// It borrows nothing, so that it can be kept beside its session; what it is given must be the session that began it,
/// and nothing else may have changed that meanwhile.
#[derive(Debug)]
pub struct Generation {
    stream: TextStream,
    bytes: Vec<u8>,
    answer: String,
    generated: Generated,
    tokens: usize,
    options: GenerateOptions,
    /// A token that was given out and has not gone through the model.
    last: Option<u32>,
    ended: Option<Ended>,
    /// The end is certain, and the text before it was given.
    over: bool,
}

impl Generation {
    pub(super) fn new(stream: TextStream, options: GenerateOptions) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            answer: String::new(),
            generated: Generated::default(),
            tokens: 0,
            options,
            last: None,
            ended: None,
            over: false,
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

    /// The bytes of the last token, which may be a part of a character.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Changes the most tokens that this text may have.
    pub fn set_max_tokens(&mut self, most: usize) {
        self.options.max_tokens = most;
    }

    /// Takes one step and puts the text that it brought into `text`, whole characters only; `None` after the last.
    ///
    /// After an error the text is where it was: a step that was stopped can be taken again.
    pub fn step(&mut self, session: &mut Session, text: &mut String) -> Result<Option<Step>> {
        if self.over {
            text.clear();
            return Ok(None);
        }
        if self.tokens >= self.options.max_tokens {
            return Ok(self.end(Ended::Length, text));
        }
        if let Some(last) = self.last {
            if session.position() == super::locked(&session.context).most_tokens() {
                return Ok(self.end(Ended::Context, text));
            }
            session.prefill(&[last])?;
            self.last = None;
        }
        let Some(token) = session.choose()? else { return Ok(self.end(Ended::Model, text)) };
        self.bytes.clear();
        // Without a tokenizer there are ids alone.
        if let Ok(tokenizer) = session.model.tokenizer() {
            tokenizer.piece_into(token.id, false, &mut self.bytes)?;
        }
        self.last = Some(token.id);
        self.tokens += 1;
        let step = self.stream.push(&self.bytes);
        if step.stopped {
            self.over = true;
            self.ended = Some(Ended::StopText);
        }
        text.clear();
        text.push_str(step.text);
        self.answer.push_str(step.text);
        self.generated.push(token.id, self.stream.decoded_length());
        Ok(Some(Step::Token(token)))
    }

    fn end(&mut self, ended: Ended, text: &mut String) -> Option<Step> {
        self.ended = Some(ended);
        self.rest(text);
        (!text.is_empty()).then_some(Step::Rest)
    }

    /// Ends the text where it is, as after a stop, and puts what was held back into `text`: no stop text can come any
    /// more.
    pub fn rest(&mut self, text: &mut String) {
        self.over = true;
        text.clear();
        text.push_str(self.stream.finish().text);
        self.answer.push_str(text);
    }

    /// Leaves the text as it is: what was written of it is what the assistant said, or what a raw text goes on from.
    pub fn finish(mut self, session: &mut Session) {
        self.leave(session);
    }

    pub(super) fn leave(&mut self, session: &mut Session) {
        self.keep(session);
        self.answer.clear();
        self.generated = Generated::default();
    }

    /// Keeps in the session what was generated so far.
    pub(super) fn keep(&self, session: &mut Session) {
        if self.options.raw {
            session.unread = self.last;
            return;
        }
        let complete = self.over && self.ended != Some(Ended::StopText);
        let generated = self.generated.first(self.answer.len(), complete);
        let message = Message::new("assistant", self.answer.as_str());
        session.turns.push(Turn { message, generated: Some(generated) });
    }
}

impl Session {
    /// Begins a text, as [`Session::generate`] does.
    pub fn begin(&mut self, prompt: &str, options: GenerateOptions) -> Result<Generation> {
        let stream = TextStream::new(&self.options.stop)?;
        let said = self.turns.len();
        let read = self.prompt_tokens(prompt, options).and_then(|tokens| self.prefill(&tokens));
        if let Err(error) = read {
            // What was not heard was not said.
            self.turns.truncate(said);
            return Err(error);
        }
        Ok(self.begun(stream, options))
    }

    /// Begins a text behind tokens that are given as they are, after those that the session has.
    pub fn begin_tokens(&mut self, tokens: &[u32], options: GenerateOptions) -> Result<Generation> {
        let stream = TextStream::new(&self.options.stop)?;
        let unread = self.unread.into_iter();
        let all: Vec<u32> = unread.chain(tokens.iter().copied()).collect();
        if self.tokens.is_empty() && all.is_empty() {
            return Err(Error::new(ErrorKind::State, "session", "has no tokens to go on from; give some"));
        }
        self.prefill(&all)?;
        Ok(self.begun(stream, GenerateOptions { raw: true, ..options }))
    }

    /// The text that follows what was just read.
    pub(super) fn begun(&mut self, stream: TextStream, options: GenerateOptions) -> Generation {
        self.unread = None;
        let source = self.source.as_ref().map_or(&[][..], |text| text.ids.as_slice());
        self.sampler.begin(source, options.max_tokens);
        Generation::new(stream, options)
    }
}
