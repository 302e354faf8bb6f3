//! The GGUF container: metadata and the tensor table, read in place.
//!
//! Parsing is total: every length and count is checked against the size of the file before it is used. Malicious files
//! give errors, and memory stays a small multiple of the table's size. String arrays, such as vocabularies of hundreds
//! of thousands of tokens, stay views into the file.

mod cursor;
mod file;
mod split;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use file::{GgufPart, TensorInfo};
pub use types::{block_of, type_name};
pub use value::{GgufValue, NumberArray, StringArray};

use siskin_format::{Error, ErrorKind, Result};
use std::path::Path;

/// A model: a single file, or all parts of a split one.
#[derive(Clone, Debug)]
pub struct Gguf {
    /// Keys and values in file order; of a split model, those of the first part.
    pub metadata: Vec<(String, GgufValue)>,
    /// The tensors of all parts, in file order.
    pub tensors: Vec<TensorInfo>,
}

impl Gguf {
    /// Opens the file at `path`, and its siblings if it is the first part of a split model.
    ///
    /// The files are mapped: they must not be truncated while the result or anything taken from it is alive.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        split::open(path.as_ref())
    }

    /// Returns the value of `key`, or `None` if the file does not have it.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the value of `key`, or an error that names the missing key.
    pub fn require(&self, key: &str) -> Result<&GgufValue> {
        self.get(key).ok_or_else(|| {
            Error::new(ErrorKind::Missing, key, "missing from the GGUF file; convert it again")
        })
    }

    /// Returns the unsigned integer under `key`, of any integer type, if the key exists.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "an unsigned integer", GgufValue::as_unsigned)
    }

    /// Returns the number under `key`, of any integer or float type, if the key exists.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", GgufValue::as_float)
    }

    /// Returns the boolean under `key`, if the key exists.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", GgufValue::as_bool)
    }

    /// Returns the string under `key`, if the key exists.
    pub fn string(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", GgufValue::as_str)
    }

    /// Returns the array of strings under `key`, if the key exists.
    pub fn strings(&self, key: &str) -> Result<Option<&StringArray>> {
        self.typed(key, "an array of strings", GgufValue::as_strings)
    }

    /// Returns the array under `key` as unsigned integers, if the key exists.
    pub fn unsigned_array(&self, key: &str) -> Result<Option<Vec<u64>>> {
        self.typed(key, "an array of unsigned integers", GgufValue::as_unsigned_array)
    }

    /// Returns the array under `key` as signed integers, if the key exists.
    pub fn signed_array(&self, key: &str) -> Result<Option<Vec<i64>>> {
        self.typed(key, "an array of integers", GgufValue::as_signed_array)
    }

    /// Returns the array under `key` as floats, if the key exists.
    pub fn float_array(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.typed(key, "an array of floats", GgufValue::as_float_array)
    }

    /// Returns the tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'a GgufValue) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| {
                Error::corrupt(key, format!("expected {wanted}, found {}", value.type_name()))
            }),
        }
    }
}
