//! Parsing of untrusted JSON: its size is bounded before anything is built from it.

use crate::{Error, Result};
use serde::de::DeserializeOwned;

/// Parses JSON of at most `max_values` values. `location` is used in errors.
///
/// A parsed value takes many times the bytes of its text (the smallest ones more than thirty instead of two), so a
/// limit on the length of the text is not enough.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8], location: &str, max_values: usize) -> Result<T> {
    if values(bytes) > max_values {
        return Err(Error::corrupt(location, format!("too large: more than {max_values} values")));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let what = if error.is_data() { "wrong type or unknown field" } else { "not JSON" };
        Error::corrupt(location, format!("{what}: {error}"))
    })
}

/// Returns an upper bound of the number of values in the text: counts every character that may precede one.
pub(super) fn values(bytes: &[u8]) -> usize {
    1 + bytes.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}
