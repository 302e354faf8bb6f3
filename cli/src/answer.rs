//! One answer of a model, streamed.

use crate::output;
use siskin::{GenerateOptions, Result, Session};
use std::time::Instant;

/// An answer and how long it took.
pub(crate) struct Answer {
    pub(crate) text: String,
    /// Tokens in the session, prompt included.
    pub(crate) position: usize,
    /// Pieces of text: about one a token.
    pub(crate) pieces: usize,
    pub(crate) prompt_seconds: f64,
    pub(crate) seconds: f64,
}

impl Answer {
    /// Generates an answer, and prints it on the way where `stream` is set.
    pub(crate) fn generate(
        session: &mut Session,
        prompt: &str,
        options: GenerateOptions,
        stream: bool,
    ) -> Result<Self> {
        let start = Instant::now();
        let (mut text, mut pieces) = (String::new(), 0);
        let generation = session.generate(prompt, options)?;
        let prompt_seconds = start.elapsed().as_secs_f64();
        for piece in generation {
            let piece = piece?;
            pieces += 1;
            if stream {
                output::write(&piece)?;
            }
            text.push_str(&piece);
        }
        let seconds = start.elapsed().as_secs_f64() - prompt_seconds;
        Ok(Self { text, position: session.position(), pieces, prompt_seconds, seconds })
    }

    /// Generated tokens a second.
    pub(crate) fn rate(&self) -> f64 {
        output::round(output::rate(self.pieces, self.seconds), 1)
    }

    /// The numbers, for people.
    pub(crate) fn summary(&self) -> String {
        format!(
            "[prompt {:.2} s, {} pieces in {:.2} s, {} a second, {} tokens in context]",
            self.prompt_seconds,
            self.pieces,
            self.seconds,
            self.rate(),
            self.position
        )
    }
}
