//! JSON lines: one object per line.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use serde_json::value::RawValue;
use siskin_format::{Error, Result};

use super::lines::NumberedLines;
use super::{Body, DataFormat, Document, Documents, Field, ReadOptions, open};

/// Files with a JSON object on each line, whose fields are the texts and the class of a document. Other fields are
/// ignored. Empty lines are skipped.
#[derive(Clone, Copy, Debug)]
pub struct JsonLines;

impl JsonLines {
    /// Returns the documents of `input`; errors name it `place`.
    pub fn documents(
        &self,
        input: Box<dyn Read + Send>,
        place: &str,
        reading: &ReadOptions,
    ) -> Result<Documents> {
        let (mut lines, reading) = (NumberedLines::new(input, place), reading.clone());
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                let line = match lines.next()? {
                    Ok(line) => line,
                    Err(error) => return Some(Err(error)),
                };
                if line.trim().is_empty() {
                    continue;
                }
                let document = document(&line, &reading);
                if document.is_err() {
                    lines.end();
                }
                let place = lines.place();
                return Some(match document {
                    Ok(document) => Ok(Document { place, ..document }),
                    Err(error) => Err(error.within(&place)),
                });
            }
        })))
    }
}

impl DataFormat for JsonLines {
    fn name(&self) -> &'static str {
        "json lines"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["jsonl", "ndjson"]
    }

    fn read(&self, path: &Path, reading: &ReadOptions) -> Result<Documents> {
        let (input, place) = open(path)?;
        self.documents(input, &place, reading)
    }
}

/// The fields of a line. Values stay unparsed until they are needed.
type Fields<'a> = HashMap<String, &'a RawValue>;

fn document(line: &str, reading: &ReadOptions) -> Result<Document> {
    let fields: Fields<'_> = serde_json::from_str(line).map_err(|error| {
        let message = format!("not a JSON object: {error}; write one object per line");
        Error::corrupt("", message)
    })?;
    let texts = reading.fields.iter().map(|field| text(&fields, field)).collect::<Result<_>>()?;
    let label = match &reading.label {
        None => None,
        Some(name) => Some(class(&fields, name, &reading.classes)?),
    };
    Ok(Document { body: Body::Texts(texts), label, place: String::new() })
}

/// Returns a value if it is present and not null.
fn value<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a str> {
    fields.get(name).map(|value| value.get()).filter(|value| *value != "null")
}

fn missing(fields: &Fields<'_>, name: &str, key: &str) -> Error {
    let mut names: Vec<&str> = fields.keys().map(String::as_str).take(16).collect();
    names.sort_unstable();
    let message = format!("the line has no such field; it has {}; set `{key}`", names.join(", "));
    Error::corrupt(format!("field {name}"), message)
}

fn text(fields: &Fields<'_>, field: &Field) -> Result<String> {
    match value(fields, &field.name) {
        None if field.optional => Ok(String::new()),
        None => Err(missing(fields, &field.name, "data.text_fields")),
        Some(value) => serde_json::from_str(value)
            .map_err(|_| Error::corrupt(format!("field {}", field.name), "not a string")),
    }
}

fn class(fields: &Fields<'_>, name: &str, classes: &[String]) -> Result<u32> {
    let place = || format!("field {name}");
    let value = value(fields, name).ok_or_else(|| missing(fields, name, "data.label_field"))?;
    if let Ok(number) = serde_json::from_str::<u32>(value) {
        if !classes.is_empty() && number as usize >= classes.len() {
            let message = format!(
                "class {number} is out of range for {} classes; list all classes in `data.class_names`",
                classes.len()
            );
            return Err(Error::corrupt(place(), message));
        }
        return Ok(number);
    }
    let name: String = serde_json::from_str(value)
        .map_err(|_| Error::corrupt(place(), "neither a class index nor a class name"))?;
    let number = classes.iter().position(|class| *class == name).ok_or_else(|| {
        let message = format!("unknown class {name:?}; list it in `data.class_names`, or use class indices");
        Error::corrupt(place(), message)
    })?;
    Ok(number as u32)
}
