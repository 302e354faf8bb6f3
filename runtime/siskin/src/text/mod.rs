//! Streaming detokenization: whole characters and stop strings.
//!
//! Tokens are bytes and may end inside a character; stop strings may begin in one token and end in another.
//! [`TextStream`] takes the bytes of tokens and returns text that can be displayed immediately and is never retracted.

mod stop;
#[cfg(test)]
mod tests;
mod utf8;

pub use stop::StopStrings;
pub use utf8::Utf8Stream;

use crate::Result;

/// Converts the bytes of tokens to displayable text, up to the first stop string.
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
    /// The total length of the decoded text, in bytes.
    length: usize,
    output: String,
}

/// The text that a token completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextDelta<'a> {
    /// Text to display, often empty.
    pub text: &'a str,
    /// Whether a stop string was found: no more text follows.
    pub stopped: bool,
}

impl TextStream {
    /// Creates a stream with its stop strings.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if a stop string is empty or they are too long.
    pub fn new(stops: &[impl AsRef<str>]) -> Result<Self> {
        Ok(Self {
            characters: Utf8Stream::new(),
            stops: StopStrings::new(stops)?,
            decoded: String::new(),
            length: 0,
            output: String::new(),
        })
    }

    /// Processes the bytes of the next token.
    pub fn push(&mut self, bytes: &[u8]) -> TextDelta<'_> {
        self.decoded.clear();
        self.output.clear();
        self.characters.push(bytes, &mut self.decoded);
        self.length += self.decoded.len();
        let stopped = self.stops.push(&self.decoded, &mut self.output);
        TextDelta { text: &self.output, stopped }
    }

    /// Ends the text: returns the text that was held back, as no stop string can follow any more.
    pub fn finish(&mut self) -> TextDelta<'_> {
        self.decoded.clear();
        self.output.clear();
        self.characters.finish(&mut self.decoded);
        self.length += self.decoded.len();
        let stopped = self.stops.push(&self.decoded, &mut self.output);
        self.stops.finish(&mut self.output);
        TextDelta { text: &self.output, stopped }
    }

    /// Returns the length in bytes of all whole characters so far, including text that is held back and text after a
    /// stop string.
    pub(crate) fn decoded_length(&self) -> usize {
        self.length
    }

    /// Returns the index of the stop string that was found.
    pub fn hit(&self) -> Option<usize> {
        self.stops.hit()
    }

    /// Resets the stream for a new text.
    pub fn reset(&mut self) {
        self.characters = Utf8Stream::new();
        self.length = 0;
        self.stops.reset();
    }
}
