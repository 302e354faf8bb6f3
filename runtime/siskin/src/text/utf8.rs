//! Incremental UTF-8 decoding.

const REPLACEMENT: &str = "\u{fffd}";

/// Decodes a stream of bytes, split at any positions, to text.
///
/// The text equals [`String::from_utf8_lossy`] of the whole stream; the bytes of an incomplete character are buffered.
///
/// ```
/// use siskin::text::Utf8Stream;
///
/// let (mut stream, mut text) = (Utf8Stream::new(), String::new());
/// stream.push(b"caf\xc3", &mut text);
/// assert_eq!(text, "caf");
/// stream.push(b"\xa9", &mut text);
/// assert_eq!(text, "café");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of an incomplete character: valid so far.
    waiting: [u8; 4],
    count: usize,
}

impl Utf8Stream {
    /// Creates an empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes the next bytes and appends the characters that are complete to `text`.
    pub fn push(&mut self, mut bytes: &[u8], text: &mut String) {
        while self.count > 0 {
            let Some((&byte, rest)) = bytes.split_first() else { return };
            self.waiting[self.count] = byte;
            match std::str::from_utf8(&self.waiting[..=self.count]) {
                Ok(character) => {
                    text.push_str(character);
                    self.count = 0;
                }
                Err(error) if error.error_len().is_none() => self.count += 1,
                // Only the last byte can be invalid, and it may begin a character of its own.
                Err(_) => {
                    text.push_str(REPLACEMENT);
                    self.count = 0;
                    continue;
                }
            }
            bytes = rest;
        }
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if is_beginning(invalid) && invalid.as_ptr_range().end == bytes.as_ptr_range().end {
                self.waiting[..invalid.len()].copy_from_slice(invalid);
                self.count = invalid.len();
            } else if !invalid.is_empty() {
                text.push_str(REPLACEMENT);
            }
        }
    }

    /// Ends the stream: an incomplete character becomes U+FFFD. The stream is then empty again.
    pub fn finish(&mut self, text: &mut String) {
        if self.count > 0 {
            text.push_str(REPLACEMENT);
        }
        self.count = 0;
    }
}

/// Returns whether these bytes are a valid prefix of a character.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
