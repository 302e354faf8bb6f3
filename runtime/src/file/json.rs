//! JSON from outside: counted before anything is built of it.

use crate::{Error, Result};
use serde::de::DeserializeOwned;

/// Reads JSON of at most `most_values` values. `place` is for errors.
///
/// A value in memory takes many times the bytes of its text (the smallest ones two against more than thirty), so that
/// a limit on the text alone bounds little.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8], place: &str, most_values: usize) -> Result<T> {
    if values(bytes) > most_values {
        return Err(Error::corrupt(place, format!("is too large: it holds more than {most_values} values")));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let what = if error.is_data() { "is not what is wanted here" } else { "is not JSON" };
        Error::corrupt(place, format!("{what}: {error}"))
    })
}

/// At least the number of values in the text: everything that may stand before one.
pub(super) fn values(bytes: &[u8]) -> usize {
    1 + bytes.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}
