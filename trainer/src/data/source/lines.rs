//! Streaming the lines of a text that may be larger than memory.

use std::io::{BufRead, BufReader, Read};

use siskin_format::{Error, ErrorKind, Result};

use super::MAX_DOCUMENT_BYTES;

/// Lines without line ends, with their line numbers. An error ends the stream.
pub(super) struct NumberedLines {
    input: Option<BufReader<Box<dyn Read + Send>>>,
    place: String,
    number: u64,
}

impl NumberedLines {
    pub(super) fn new(input: Box<dyn Read + Send>, place: &str) -> Self {
        Self { input: Some(BufReader::new(input)), place: place.to_owned(), number: 0 }
    }

    /// Returns the place of the last line, for errors.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.place, self.number)
    }

    /// Ends the stream.
    pub(super) fn end(&mut self) {
        self.input = None;
    }

    fn read(&mut self) -> Result<Option<String>> {
        let Some(input) = &mut self.input else { return Ok(None) };
        self.number += 1;
        let mut bytes = Vec::new();
        let read = input.take(MAX_DOCUMENT_BYTES as u64 + 2).read_until(b'\n', &mut bytes);
        read.map_err(|error| Error::io(self.place(), &error))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            bytes.pop_if(|byte| *byte == b'\r');
        }
        if bytes.len() > MAX_DOCUMENT_BYTES {
            let message = format!(
                "the line is longer than {MAX_DOCUMENT_BYTES} bytes; split it into several documents"
            );
            return Err(Error::new(ErrorKind::TooLong, self.place(), message));
        }
        let mut line = String::from_utf8(bytes).map_err(|error| {
            let from = error.utf8_error().valid_up_to();
            let message = format!("not UTF-8 at byte {from} of the line; convert the file to UTF-8");
            Error::corrupt(self.place(), message)
        })?;
        if self.number == 1 && line.starts_with('\u{FEFF}') {
            line.drain(..'\u{FEFF}'.len_utf8());
        }
        Ok(Some(line))
    }
}

impl Iterator for NumberedLines {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.read().transpose();
        if !matches!(line, Some(Ok(_))) {
            self.input = None;
        }
        line
    }
}
