//! One answer of a model, streamed.

use crate::interrupt::Stoppable;
use crate::output;
use siskin::{ErrorKind, FinishReason, GenerateOptions, Result, Session};
use std::time::Instant;

/// An answer and its timing.
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
    /// The finish reason, unless it was cancelled.
    pub(crate) ended: Option<FinishReason>,
}

impl TimedAnswer {
    /// Generates an answer, and passes its text to `print` as it is generated. Ctrl-C cancels it.
    pub(crate) fn generate(
        session: &mut Session,
        prompt: &str,
        options: GenerateOptions,
        print: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Self> {
        let stoppable = Stoppable::new(session);
        let start = Instant::now();
        let mut text = String::new();
        let mut stopped = false;
        let mut generation = session.generate(prompt, options)?;
        let prompt_seconds = start.elapsed().as_secs_f64();
        for piece in &mut generation {
            let piece = match piece {
                Err(error) if error.kind() == ErrorKind::Cancelled => {
                    stopped = true;
                    break;
                }
                piece => piece?,
            };
            print(&piece)?;
            text.push_str(&piece);
        }
        let (tokens, ended) = (generation.tokens(), generation.finish_reason());
        drop(generation);
        drop(stoppable);
        let seconds = start.elapsed().as_secs_f64() - prompt_seconds;
        Ok(Self { text, position: session.position(), tokens, prompt_seconds, seconds, stopped, ended })
    }

    /// Returns the generated tokens per second.
    pub(crate) fn rate(&self) -> f64 {
        output::round(output::rate(self.tokens, self.seconds), 1)
    }

    /// Returns a human-readable summary.
    pub(crate) fn summary(&self) -> String {
        format!(
            "[prompt {:.2} s, {} tokens in {:.2} s, {} tokens a second, {} in context]",
            self.prompt_seconds,
            self.tokens,
            self.seconds,
            self.rate(),
            self.position
        )
    }
}
