//! Streaming text: whole characters only, stop strings.
//!
//! Tokens are bytes and may end inside a character; stop strings may begin in one token and end in
//! another. [`TextStream`] takes tokens' bytes and hands on text that can be shown at once and never has to
//! be taken back.

mod stop;
#[cfg(test)]
mod tests;
mod utf8;

pub use stop::StopStrings;
pub use utf8::Utf8Stream;

use crate::Result;

/// Tokens' bytes to text that can be shown, up to the first stop string.
///
/// ```
/// use siskin::text::TextStream;
///
/// let mut stream = TextStream::new(&["</answer>"])?;
/// assert_eq!(stream.push(b"4 \xe2\x82").text, "4 ");
/// assert_eq!(stream.push(b"\xac</ans").text, "€");
/// assert_eq!(stream.push(b" was </answer").text, "</ans was ");
/// let step = stream.push(b">\n");
/// assert!(step.stopped && step.text.is_empty());
/// # Ok::<(), siskin::Error>(())
/// ```
///
/// Its buffers are reused: once they have grown to the longest piece, nothing is allocated.
#[derive(Clone, Debug)]
pub struct TextStream {
    characters: Utf8Stream,
    stops: StopStrings,
    decoded: String,
    /// The bytes of all text that was decoded.
    length: usize,
    output: String,
}

/// The text that a piece brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Text to show, often empty.
    pub text: &'a str,
    /// Whether a stop string came: there will be no more text.
    pub stopped: bool,
}

impl TextStream {
    /// A stream at its beginning, with the strings it stops at.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when a stop string is empty or they are too
    /// long.
    pub fn new(stops: &[impl AsRef<str>]) -> Result<Self> {
        Ok(Self {
            characters: Utf8Stream::new(),
            stops: StopStrings::new(stops)?,
            decoded: String::new(),
            length: 0,
            output: String::new(),
        })
    }

    /// Takes the next token's bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Step<'_> {
        self.decoded.clear();
        self.output.clear();
        self.characters.push(bytes, &mut self.decoded);
        self.length += self.decoded.len();
        let stopped = self.stops.push(&self.decoded, &mut self.output);
        Step { text: &self.output, stopped }
    }

    /// Ends the text: hands on what was held back, as no stop string can come any more.
    pub fn finish(&mut self) -> Step<'_> {
        self.decoded.clear();
        self.output.clear();
        self.characters.finish(&mut self.decoded);
        self.length += self.decoded.len();
        let stopped = self.stops.push(&self.decoded, &mut self.output);
        self.stops.finish(&mut self.output);
        Step { text: &self.output, stopped }
    }

    /// The bytes of whole characters that came so far, with what is held back and what follows a stop string.
    pub(crate) fn decoded_length(&self) -> usize {
        self.length
    }

    /// Which of the stop strings came.
    pub fn hit(&self) -> Option<usize> {
        self.stops.hit()
    }

    /// Goes back to the beginning of a text.
    pub fn reset(&mut self) {
        self.characters = Utf8Stream::new();
        self.length = 0;
        self.stops.reset();
    }
}
