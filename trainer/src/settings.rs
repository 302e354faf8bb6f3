//! Settings by name: the choice from a list, and its typed settings.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use siskin_format::{Error, Result};
use strsim::damerau_levenshtein;

/// Settings by name, as in a config file.
pub type Settings = Map<String, Value>;

/// Reads settings of type `S`; those that are not given have their defaults.
///
/// # Errors
/// If a setting is unknown or has the wrong type.
pub(crate) fn read<S: Default + Serialize + DeserializeOwned>(place: &str, given: &Settings) -> Result<S> {
    let whole = serde_json::to_value(S::default()).unwrap_or_default();
    let known: Vec<&str> = whole.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(unknown(&format!("{place}.{name}"), "setting", name, &known));
    }
    serde_json::from_value(Value::Object(given.clone()))
        .map_err(|error| Error::argument(place, error.to_string()))
}

/// Returns the error for a name that is not in a list.
pub(crate) fn unknown(place: &str, what: &str, name: &str, known: &[&str]) -> Error {
    Error::argument(place, format!("unknown {what} `{name}`; {}", expected(name, known)))
}

/// Returns the end of a message about a name that is not in a list: the known names, and the nearest one if it is
/// similar enough to be meant.
pub(crate) fn expected(name: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    let distance = |other: &str| damerau_levenshtein(name, other);
    let similar = |other: &&&str| {
        distance(other) <= name.chars().count() / 3 || name.len() >= 3 && other.starts_with(name)
    };
    match known.iter().filter(similar).min_by_key(|other| distance(other)) {
        Some(nearest) => format!("did you mean `{nearest}`? Expected one of: {list}"),
        None => format!("expected one of: {list}"),
    }
}

/// Rejects numbers outside `range`.
pub(crate) fn within(place: &str, number: f64, range: std::ops::RangeInclusive<f64>) -> Result<()> {
    match range.contains(&number) {
        true => Ok(()),
        false => {
            let message =
                format!("expected a number from {} to {}, got {number}", range.start(), range.end());
            Err(Error::argument(place, message))
        }
    }
}

/// Returns true if a name matches a pattern, in which `*` matches any characters.
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, want) in [
            ("a.b", "a.b", true),
            ("a.b", "a.bc", false),
            ("*", "", true),
            ("*norm*", "blk.0.attn_norm.weight", true),
            ("*.bias", "blk.0.bias", true),
            ("*.bias", "blk.0.bias.x", false),
            ("blk.*.attn*.weight", "blk.12.attn_q.weight", true),
            ("blk.*.attn*.weight", "blk.12.ffn_up.weight", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(fits(pattern, name), want, "{pattern} and {name}");
        }
    }

    #[test]
    fn errors_suggest_the_nearest_name() {
        let error = unknown("optimizer", "optimizer", "adamv", &["sgd", "adamw", "lion"]);
        assert!(error.message().contains("did you mean `adamw`?"), "{error}");
        assert!(error.message().contains("sgd, adamw, lion"), "{error}");
        let far = unknown("task", "task", "dpo", &["causal", "masked", "spans"]);
        assert!(!far.message().contains("did you mean"), "{far}");
    }
    #[test]
    fn distant_names_are_not_suggested() {
        let message = |name, known: &[&str]| expected(name, known);
        assert!(!message("rate", &["name"]).contains("did you mean"));
        assert!(message("taks", &["task"]).contains("did you mean `task`?"));
    }
}
