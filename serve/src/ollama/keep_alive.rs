//! `keep_alive`: how long a model stays loaded. Here models always do.

use serde::Deserialize;
use siskin_format::JsonFields;

use crate::error::ApiError;

const FIELD: &str = "keep_alive";
/// The units of durations, those that begin like another one first.
const UNITS: [&str; 8] = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a duration, such as `5m`, or a number of seconds")]
enum KeepAlive {
    Seconds(f64),
    Text(String),
}

/// Takes the field. Returns true if the model is to be unloaded at once.
pub(super) fn take_unload(fields: &mut JsonFields<'_>) -> Result<bool, ApiError> {
    let invalid = |text: &str| {
        let message =
            format!("`{text}` is not a duration; expected one such as `5m`, or a number of seconds");
        ApiError::invalid(FIELD, message)
    };
    match fields.take(FIELD)? {
        None => Ok(false),
        Some(KeepAlive::Seconds(seconds)) => Ok(seconds == 0.0),
        Some(KeepAlive::Text(text)) => is_zero(&text).ok_or_else(|| invalid(&text)),
    }
}

/// Returns whether a duration such as `1h30m` is zero; `None` if it is not a duration.
fn is_zero(text: &str) -> Option<bool> {
    let mut left = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Ok(seconds) = left.parse::<f64>() {
        return Some(seconds == 0.0);
    }
    let (mut is_zero, has_number) = (true, !left.is_empty());
    while !left.is_empty() {
        let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = left.split_at(digits);
        is_zero &= number.parse::<f64>().ok()? == 0.0;
        // `ms` is not `m`.
        let unit = UNITS.iter().filter(|unit| rest.starts_with(**unit)).max_by_key(|unit| unit.len())?;
        left = &rest[unit.len()..];
    }
    has_number.then_some(is_zero)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn durations_are_parsed() {
        for zero in ["0", "-0", "0s", "0h0m0s", "0.0ms"] {
            assert_eq!(is_zero(zero), Some(true), "{zero}");
        }
        for other in ["5m", "-1", "1h30m", "300", "0h1ms", "1.5h", "-1s", "20µs"] {
            assert_eq!(is_zero(other), Some(false), "{other}");
        }
        for wrong in ["", "-", "m", "5x", "5m3", "1..5s", "5 m", "forever"] {
            assert_eq!(is_zero(wrong), None, "{wrong}");
        }
    }
}
