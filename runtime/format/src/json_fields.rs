//! The fields of a request: each is taken once; fields that remain are an error.

use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::value::RawValue;

use crate::type_errors::readable;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// What JSON calls a map.
const OBJECT: &str = "an object";

/// The unparsed fields of a JSON object: takes little more memory than the line itself.
pub struct JsonFields<'a> {
    left: BTreeMap<String, &'a RawValue>,
    /// The names of fields that were taken or looked for.
    known: Vec<String>,
}

impl<'a> JsonFields<'a> {
    /// Parses a JSON object.
    pub fn read(line: &'a str) -> Result<Self> {
        let fields = serde_json::from_str(line).map(|left| Self { left, known: Vec::new() });
        fields.map_err(|error| Error::argument("", not_an_object(line, &error)))
    }

    /// Returns whether the field `name` is left.
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// Takes the field `name`, if it is present and not null.
    pub fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>> {
        self.known.push(name.to_owned());
        let Some(value) = self.left.remove(name) else { return Ok(None) };
        serde_json::from_str(value.get()).map_err(|error| wrong(name, &error))
    }

    /// Takes the required field `name`.
    pub fn take_required<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T> {
        self.take(name)?.ok_or_else(|| Error::argument(name, "missing"))
    }

    /// Takes options from the fields with these names.
    pub fn take_options<T: Deserialize<'a>>(&mut self, names: &[&str]) -> Result<T> {
        self.known.extend(names.iter().map(|&name| name.to_owned()));
        let given = names.iter().filter_map(|name| self.left.remove_entry(*name)).collect();
        options(&given)
    }

    /// Takes options from all remaining fields.
    pub fn into_options<T: Deserialize<'a>>(self) -> Result<T> {
        options(&self.left).map_err(|error| with_names(error, &self.known))
    }

    /// Drops the fields that are null, as if they were missing.
    pub fn ignore_null(&mut self) {
        self.left.retain(|_, value| value.get() != "null");
    }

    /// Drops the fields with these names, which have no effect.
    pub fn ignore(&mut self, names: &[&str]) {
        self.left.retain(|name, _| !names.contains(&name.as_str()));
    }

    /// Fails if a field remains.
    pub fn finish(self) -> Result<()> {
        self.into_options::<Nothing>().map(drop)
    }
}

/// Options for requests that have none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn options<'a, T: Deserialize<'a>>(given: &BTreeMap<String, &'a RawValue>) -> Result<T> {
    let fields = || given.iter().map(|(name, value)| (name.as_str(), *value));
    // Each field on its own first, so that an error names the field.
    for field in fields() {
        let alone = MapDeserializer::new(std::iter::once(field));
        T::deserialize(alone).map_err(|error: serde_json::Error| wrong(field.0, &error))?;
    }
    T::deserialize(MapDeserializer::new(fields())).map_err(|error: serde_json::Error| wrong("", &error))
}

/// Adds field names to an error that lists the known fields.
fn with_names(error: Error, names: &[String]) -> Error {
    let message = error.message();
    if names.is_empty() || !message.starts_with("unknown field") {
        return error;
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let message = match message.strip_suffix("there are no fields") {
        Some(start) => format!("{start}expected one of {}", names.join(", ")),
        None => format!("{message}, {}", names.join(", ")),
    };
    Error::argument(error.location().to_owned(), shortened(&message))
}

fn wrong(name: &str, error: &serde_json::Error) -> Error {
    // The line and column are relative to the field.
    Error::argument(shortened(name), shortened(&readable(&without_place(error), OBJECT)))
}

/// Returns the message about a text that is not a JSON object.
fn not_an_object(line: &str, error: &serde_json::Error) -> String {
    if !error.is_data() {
        let line = if error.line() > 1 { format!("line {}, ", error.line()) } else { String::new() };
        return format!("invalid JSON at {line}column {}: {}", error.column(), without_place(error));
    }
    let found = match line.trim_start().chars().next() {
        Some('[') => "an array",
        Some('"') => "a string",
        Some('t' | 'f') => "a boolean",
        Some('n') => "null",
        _ => "a number",
    };
    format!("expected a JSON object, got {found}")
}

/// Returns the message of an error without the line and column.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text).to_owned()
}

/// Truncates text that quotes a request, which can be as long as the request: between words if it has words.
fn shortened(text: &str) -> String {
    const MAX: usize = 1024;
    if text.len() <= MAX {
        return text.to_owned();
    }
    let start = &text[..text.floor_char_boundary(MAX)];
    let words = start.rsplit_once(' ').map_or(start, |(words, _)| words);
    format!("{words} …")
}
