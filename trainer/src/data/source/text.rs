//! Plain text.

use std::io::Read;
use std::path::Path;

use siskin_format::{Error, ErrorKind, Result};

use super::lines::NumberedLines;
use super::{Body, DataFormat, Document, Documents, MAX_DOCUMENT_BYTES, ReadOptions, open};

/// Where plain text is split into documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DocumentSeparator {
    /// At lines that are empty or only white space.
    #[default]
    BlankLines,
    /// At each occurrence of this string within a line.
    Text(String),
    /// Not at all: each file is a document.
    Files,
}

/// Plain text files. Lines of a document are joined with line feeds; it neither starts nor ends with one. Documents
/// of only white space are skipped.
#[derive(Clone, Copy, Debug)]
pub struct PlainText;

impl PlainText {
    /// Returns the documents of `input`; errors name it `place`.
    pub fn documents(
        &self,
        input: Box<dyn Read + Send>,
        place: &str,
        reading: &ReadOptions,
    ) -> Result<Documents> {
        reading.plain(place)?;
        if let DocumentSeparator::Text(separator) = &reading.separator
            && (separator.is_empty() || separator.contains(['\n', '\r']))
        {
            let message =
                "must not be empty or contain a line break; use `blank_lines` to split at empty lines";
            return Err(Error::argument("data.document_separator", message));
        }
        Ok(Box::new(SeparatedText {
            lines: NumberedLines::new(input, place),
            cut: reading.separator.clone(),
            held: None,
        }))
    }
}

impl DataFormat for PlainText {
    fn name(&self) -> &'static str {
        "text"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["txt", "text", "md"]
    }

    fn read(&self, path: &Path, reading: &ReadOptions) -> Result<Documents> {
        let (input, place) = open(path)?;
        self.documents(input, &place, reading)
    }
}

struct SeparatedText {
    lines: NumberedLines,
    cut: DocumentSeparator,
    /// A line that contains a separator, and the offset after it.
    held: Option<(String, usize)>,
}

/// A document that is being read.
#[derive(Default)]
struct DocumentBuilder {
    text: String,
    lines: usize,
    place: String,
}

impl DocumentBuilder {
    fn push(&mut self, line: &str, lines: &NumberedLines) -> Result<()> {
        if self.text.is_empty() && !line.is_empty() {
            self.place = lines.place();
        }
        if self.text.len() + line.len() >= MAX_DOCUMENT_BYTES {
            let message = format!(
                "the document is longer than {MAX_DOCUMENT_BYTES} bytes; separate documents with blank lines, or set \
                 data.document_separator"
            );
            return Err(Error::new(ErrorKind::TooLong, lines.place(), message));
        }
        if self.lines > 0 {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.lines += 1;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn document(self) -> Document {
        let text = self.text.trim_matches('\n').to_owned();
        Document { body: Body::Texts(vec![text]), label: None, place: self.place }
    }
}

impl SeparatedText {
    /// Returns the next line, or the rest of one, and whether the document ends with it.
    fn line(&mut self) -> Option<Result<(String, bool)>> {
        let (line, start) = match self.held.take() {
            Some(held) => held,
            None => match self.lines.next()? {
                Ok(line) => (line, 0),
                Err(error) => return Some(Err(error)),
            },
        };
        Some(Ok(match &self.cut {
            DocumentSeparator::BlankLines => {
                let ends = line.trim().is_empty();
                (if ends { String::new() } else { line }, ends)
            }
            DocumentSeparator::Files => (line, false),
            DocumentSeparator::Text(separator) => match line[start..].find(separator.as_str()) {
                None => (line[start..].to_owned(), false),
                Some(at) => {
                    let piece = line[start..start + at].to_owned();
                    self.held = Some((line, start + at + separator.len()));
                    (piece, true)
                }
            },
        }))
    }
}

impl Iterator for SeparatedText {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = DocumentBuilder::default();
        loop {
            let ends = match self.line() {
                None => return (!piece.is_empty()).then(|| Ok(piece.document())),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok((line, ends))) => match piece.push(&line, &self.lines) {
                    Ok(()) => ends,
                    Err(error) => {
                        self.lines.end();
                        return Some(Err(error));
                    }
                },
            };
            if ends && !piece.is_empty() {
                return Some(Ok(piece.document()));
            }
            if ends {
                piece = DocumentBuilder::default();
            }
        }
    }
}
