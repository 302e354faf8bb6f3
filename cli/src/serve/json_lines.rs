//! Line reader that does not buffer lines over a maximum length.

use std::io::{BufRead, BufReader, Read, Result};

/// The lines of an input.
pub(super) struct InputLines<R> {
    input: BufReader<R>,
    longest: usize,
    line: Vec<u8>,
}

/// A line.
#[derive(Debug, PartialEq)]
pub(super) enum InputLine<'a> {
    /// Its bytes, without the line ending.
    Whole(&'a [u8]),
    /// The line exceeds the maximum length; its bytes are skipped.
    TooLong,
}

impl<R: Read> InputLines<R> {
    pub(super) fn new(input: R, longest: usize) -> Self {
        Self { input: BufReader::new(input), longest, line: Vec::new() }
    }

    /// Number of buffered bytes of the last line.
    pub(super) fn length(&self) -> usize {
        self.line.len()
    }

    /// Returns the next line; `None` at the end of the input.
    pub(super) fn next(&mut self) -> Result<Option<InputLine<'_>>> {
        self.line = Vec::new();
        let (mut too_long, mut begun) = (false, false);
        loop {
            let bytes = match self.input.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if bytes.is_empty() {
                return Ok(begun.then(|| self.ended(too_long)));
            }
            begun = true;
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            too_long |= part.len() > self.longest - self.line.len();
            if too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(self.ended(too_long)));
            }
        }
    }

    fn ended(&self, too_long: bool) -> InputLine<'_> {
        if too_long { InputLine::TooLong } else { InputLine::Whole(&self.line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields one byte at a time.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            match (self.0.split_first(), buffer.first_mut()) {
                (Some((byte, rest)), Some(location)) => {
                    (*location, self.0) = (*byte, rest);
                    Ok(1)
                }
                _ => Ok(0),
            }
        }
    }

    #[test]
    fn lines_end_where_they_do_and_long_ones_are_left_out() {
        let text = b"one\n\nfour\nfives\nfour\nfive5";
        for slowly in [false, true] {
            let input: Box<dyn Read> = if slowly { Box::new(Slowly(text)) } else { Box::new(&text[..]) };
            let mut lines = InputLines::new(input, 4);
            for expected in [&b"one"[..], b"", b"four"] {
                assert_eq!(lines.next().unwrap(), Some(InputLine::Whole(expected)));
            }
            assert_eq!(lines.next().unwrap(), Some(InputLine::TooLong));
            assert_eq!(lines.length(), 0);
            assert_eq!(lines.next().unwrap(), Some(InputLine::Whole(b"four")));
            assert_eq!(lines.next().unwrap(), Some(InputLine::TooLong), "at the end of the input");
            assert_eq!(lines.next().unwrap(), None);
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_held() {
        let mut lines = InputLines::new(std::io::repeat(b'x').take(1 << 24), 1000);
        assert_eq!(lines.next().unwrap(), Some(InputLine::TooLong));
        assert!(lines.line.capacity() <= 2000);
        assert_eq!(lines.next().unwrap(), None);
    }
}
