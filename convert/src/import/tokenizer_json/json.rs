//! JSON values with their path, for messages.

use serde_json::Value;
use siskin_format::{Error, ErrorKind, Result};

/// A value in a document and its path.
pub(super) struct JsonValue<'a> {
    pub(super) value: &'a Value,
    path: String,
}

impl<'a> JsonValue<'a> {
    pub(super) fn new(value: &'a Value, path: impl Into<String>) -> Self {
        Self { value, path: path.into() }
    }

    pub(super) fn corrupt(&self, message: impl Into<String>) -> Error {
        Error::corrupt(self.path.clone(), message)
    }

    pub(super) fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::unsupported(self.path.clone(), message)
    }

    /// Returns the field `name`, unless it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<JsonValue<'a>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(JsonValue::new(value, format!("{}.{name}", self.path)))
    }

    pub(super) fn require(&self, name: &str) -> Result<JsonValue<'a>> {
        self.get(name)
            .ok_or_else(|| Error::new(ErrorKind::Missing, format!("{}.{name}", self.path), "missing"))
    }

    /// Returns the component's `type`.
    pub(super) fn kind(&self) -> Result<&'a str> {
        self.require("type")?.text()
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.corrupt("expected a string"))
    }

    pub(super) fn number(&self) -> Result<u32> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.corrupt("expected a number from 0 to 4294967295"))
    }

    pub(super) fn list(&self) -> Result<Vec<JsonValue<'a>>> {
        let list = self.value.as_array().ok_or_else(|| self.corrupt("expected a list"))?;
        Ok(list
            .iter()
            .enumerate()
            .map(|(at, value)| JsonValue::new(value, format!("{}[{at}]", self.path)))
            .collect())
    }

    /// Returns the string field `name`, if present.
    pub(super) fn text_of(&self, name: &str) -> Result<Option<&'a str>> {
        self.get(name).map(|place| place.text()).transpose()
    }

    /// Returns the boolean field `name`, or `default`.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(place) => place.value.as_bool().ok_or_else(|| place.corrupt("expected true or false")),
        }
    }
}
