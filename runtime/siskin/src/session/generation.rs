//! Text generation, step by step.

use super::conversation::{ConversationMessage, Generated};
use super::{GenerateOptions, GeneratedToken, Session};
use crate::text::TextStream;
use crate::{Error, ErrorKind, Result};
use siskin_chat_template::Message;

/// Finish reason: why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model produced an end token.
    Eos,
    /// One of the stop strings in [`SessionOptions::stop`](super::SessionOptions::stop) occurred.
    Stop,
    /// The maximum number of tokens was reached.
    Length,
    /// The context is full.
    Context,
}

impl FinishReason {
    /// Returns the name: `eos`, `stop`, `length` or `context`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Context => "context",
        }
    }
}

/// The result of a step of a generation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GenerationStep {
    /// A token. The text that it completes may be empty: only whole characters are returned, and text that may be the
    /// beginning of a stop string is held back.
    Token(GeneratedToken),
    /// No token, but held-back text that is flushed at the end.
    Rest,
}

/// A running generation, started by [`Session::begin`]; [`TextChunks`](super::TextChunks) is the iterator over it.
///
/// It does not borrow the session, so that both can be stored in one struct. It must be used with the session that
/// started it, and the session must not have been changed in the meantime.
#[derive(Debug)]
pub struct Generation {
    stream: TextStream,
    bytes: Vec<u8>,
    answer: String,
    generated: Generated,
    tokens: usize,
    options: GenerateOptions,
    /// A token that was returned but has not been processed by the model yet.
    last: Option<u32>,
    finish_reason: Option<FinishReason>,
    /// The generation has ended, and all text before its end was returned.
    over: bool,
    /// Special tokens that have a text.
    visible_tokens: Vec<u32>,
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
            finish_reason: None,
            over: false,
            visible_tokens: Vec::new(),
        }
    }

    /// Makes special tokens a part of the text.
    #[cfg(feature = "tools")]
    pub(crate) fn with_visible_tokens(self, visible_tokens: Vec<u32>) -> Self {
        Self { visible_tokens, ..self }
    }

    /// Returns the number of tokens generated so far.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the finish reason, once the generation has ended.
    pub fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    /// Returns the bytes of the last token, which may be part of a character.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sets the maximum number of tokens in this generation.
    pub fn set_max_tokens(&mut self, max_tokens: usize) {
        self.options.max_tokens = max_tokens;
    }

    /// Generates a token and appends the text that it completes to `text`, in whole characters; `None` after the last.
    ///
    /// After an error the generation is unchanged: a canceled step can be retried.
    pub fn step(&mut self, session: &mut Session, text: &mut String) -> Result<Option<GenerationStep>> {
        if self.over {
            text.clear();
            return Ok(None);
        }
        if session.sampler.is_complete()? {
            return Ok(self.end(FinishReason::Eos, text));
        }
        if self.tokens >= self.options.max_tokens {
            return Ok(self.end(FinishReason::Length, text));
        }
        if let Some(last) = self.last {
            if session.position() == session.context_length() {
                return Ok(self.end(FinishReason::Context, text));
            }
            session.prefill(&[last])?;
            self.last = None;
        }
        let Some(token) = session.sample_token()? else { return Ok(self.end(FinishReason::Eos, text)) };
        let is_visible = self.visible_tokens.contains(&token.id);
        session.model.token_bytes(token.id, is_visible, &mut self.bytes)?;
        self.last = Some(token.id);
        self.tokens += 1;
        let step = self.stream.push(&self.bytes);
        if step.stopped {
            self.over = true;
            self.finish_reason = Some(FinishReason::Stop);
        }
        text.clear();
        text.push_str(step.text);
        self.answer.push_str(step.text);
        self.generated.push(token.id, self.stream.decoded_length());
        Ok(Some(GenerationStep::Token(token)))
    }

    fn end(&mut self, finish_reason: FinishReason, text: &mut String) -> Option<GenerationStep> {
        self.finish_reason = Some(finish_reason);
        self.rest(text);
        (!text.is_empty()).then_some(GenerationStep::Rest)
    }

    /// Ends the generation early, as after a cancellation, and appends the text that was held back to `text`: no stop
    /// string can follow any more.
    pub fn rest(&mut self, text: &mut String) {
        self.over = true;
        text.clear();
        text.push_str(self.stream.finish().text);
        self.answer.push_str(text);
    }

    /// Finishes the generation as it is: its text becomes the assistant's message, or the text that a raw generation
    /// continues from.
    pub fn finish(mut self, session: &mut Session) {
        self.leave(session);
    }

    pub(super) fn leave(&mut self, session: &mut Session) {
        self.keep(session);
        self.answer.clear();
        self.generated = Generated::default();
    }

    /// Stores the text and tokens generated so far in the session.
    pub(super) fn keep(&self, session: &mut Session) {
        if self.options.raw {
            session.pending_token = self.last;
            return;
        }
        let complete = self.over && self.finish_reason != Some(FinishReason::Stop);
        let generated = self.generated.first(self.answer.len(), complete);
        let message = Message::new("assistant", self.answer.as_str());
        session.turns.push(ConversationMessage { message, generated: Some(generated) });
    }
}

impl Session {
    /// Starts a generation like [`Session::generate`].
    pub fn begin(&mut self, prompt: &str, options: GenerateOptions) -> Result<Generation> {
        let stream = TextStream::new(&self.options.stop)?;
        let said = self.turns.len();
        let read = self.prompt_tokens(prompt, options).and_then(|tokens| self.prefill(&tokens));
        if let Err(error) = read {
            // A message that was not processed is not part of the conversation.
            self.turns.truncate(said);
            return Err(error);
        }
        Ok(self.begun(stream, options))
    }

    /// Starts a generation after `tokens`, which are appended unchanged to those of the session.
    pub fn begin_tokens(&mut self, tokens: &[u32], options: GenerateOptions) -> Result<Generation> {
        let stream = TextStream::new(&self.options.stop)?;
        let pending_token = self.pending_token.into_iter();
        let all: Vec<u32> = pending_token.chain(tokens.iter().copied()).collect();
        if self.tokens.is_empty() && all.is_empty() {
            return Err(Error::new(ErrorKind::State, "session", "no tokens; prefill some first"));
        }
        self.prefill(&all)?;
        Ok(self.begun(stream, GenerateOptions { raw: true, ..options }))
    }

    /// Creates the generation that follows the prompt that was just processed.
    pub(super) fn begun(&mut self, stream: TextStream, options: GenerateOptions) -> Generation {
        self.pending_token = None;
        let source = self.source.as_ref().map_or(&[][..], |text| text.ids.as_slice());
        self.sampler.begin(source, options.max_tokens);
        Generation::new(stream, options)
    }
}
