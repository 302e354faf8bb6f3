//! One response of a model, streamed.

use crate::interrupt::Stoppable;
use crate::output;
use siskin::{
    ErrorKind, FinishReason, GenerateOptions, GeneratedToken, Generation, GenerationStep, Result, Session,
};
use std::time::Instant;

/// A response and its timing.
pub(crate) struct TimedAnswer {
    pub(crate) text: String,
    /// Tokens in the session, including the prompt.
    pub(crate) position: usize,
    /// Tokens generated.
    pub(crate) tokens: usize,
    pub(crate) prompt_seconds: f64,
    pub(crate) seconds: f64,
    /// True if Ctrl-C ended it.
    pub(crate) stopped: bool,
    /// The finish reason, unless it was canceled.
    pub(crate) finish_reason: Option<FinishReason>,
}

/// The name of the finish reason of a canceled response.
pub(crate) const CANCELED: &str = "canceled";

impl TimedAnswer {
    /// Returns the name of the finish reason.
    pub(crate) fn finish_reason(&self) -> &'static str {
        self.finish_reason.map_or(CANCELED, FinishReason::name)
    }

    /// Generates a response. Passes its text to `print` and its tokens to `on_token` as they are generated. Ctrl-C
    /// cancels it.
    pub(crate) fn generate(
        session: &mut Session,
        prompt: &str,
        options: GenerateOptions,
        print: &mut dyn FnMut(&str) -> Result<()>,
        on_token: &mut dyn FnMut(&Session, GeneratedToken) -> Result<()>,
    ) -> Result<Self> {
        Self::run(session, |session| session.begin(prompt, options), print, on_token)
    }

    /// The same for a generation that `begin` starts.
    pub(crate) fn run(
        session: &mut Session,
        begin: impl FnOnce(&mut Session) -> Result<Generation>,
        print: &mut dyn FnMut(&str) -> Result<()>,
        on_token: &mut dyn FnMut(&Session, GeneratedToken) -> Result<()>,
    ) -> Result<Self> {
        let stoppable = Stoppable::new(session);
        let start = Instant::now();
        let mut generation = begin(session)?;
        let prompt_seconds = start.elapsed().as_secs_f64();
        let (mut text, mut piece) = (String::new(), String::new());
        let outcome = loop {
            let outcome = match generation.step(session, &mut piece) {
                Ok(None) => break Ok(()),
                Ok(Some(GenerationStep::Token(token))) => on_token(session, token),
                Ok(Some(GenerationStep::Rest)) => Ok(()),
                Err(error) => {
                    // A partial match of a stop string at the end is text.
                    generation.rest(&mut piece);
                    Err(error)
                }
            };
            if !piece.is_empty() {
                print(&piece)?;
                text.push_str(&piece);
            }
            if outcome.is_err() {
                break outcome;
            }
        };
        let (tokens, finish_reason) = (generation.tokens(), generation.finish_reason());
        generation.finish(session);
        drop(stoppable);
        let stopped = match outcome {
            Err(error) if error.kind() == ErrorKind::Canceled => true,
            outcome => outcome.map(|()| false)?,
        };
        let seconds = start.elapsed().as_secs_f64() - prompt_seconds;
        Ok(Self {
            text,
            position: session.position(),
            tokens,
            prompt_seconds,
            seconds,
            stopped,
            finish_reason,
        })
    }

    /// Returns the generated tokens per second.
    pub(crate) fn rate(&self) -> f64 {
        output::round(output::rate(self.tokens, self.seconds), 1)
    }

    /// Returns a human-readable summary.
    pub(crate) fn summary(&self) -> String {
        format!(
            "[prompt {:.2} s, {} tokens in {:.2} s, {} tokens/s, {} in context]",
            self.prompt_seconds,
            self.tokens,
            self.seconds,
            self.rate(),
            self.position
        )
    }
}
