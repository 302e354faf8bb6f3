//! Settings by name: the choice from a list, and its typed settings.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use siskin_format::type_errors::readable;
use siskin_format::{Error, Result};
use strsim::damerau_levenshtein;

/// Settings by name, as in a config file.
pub type Settings = Map<String, Value>;

/// Reads settings of type `S`; those that are not given have their defaults. `place` is empty for top-level settings.
///
/// # Errors
/// If a setting is unknown or has the wrong type.
pub(crate) fn read<S: Default + Serialize + DeserializeOwned>(place: &str, given: &Settings) -> Result<S> {
    let whole = serde_json::to_value(S::default()).unwrap_or_default();
    let known: Vec<&str> = whole.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(unknown(&format!("{place}.{name}"), "setting", name, &known));
    }
    parse(place, given)
}

/// Reads settings of type `S`. An error names the setting that has the wrong type.
pub(crate) fn parse<S: DeserializeOwned>(place: &str, given: &Settings) -> Result<S> {
    serde_json::from_value(Value::Object(given.clone())).map_err(|error| {
        let mut path = Vec::new();
        let message = culprit::<S>(&mut path, given).unwrap_or_else(|| error.to_string());
        let names = (!place.is_empty()).then_some(place).into_iter().chain(path);
        Error::argument(names.collect::<Vec<_>>().join("."), readable(&message, "a table"))
    })
}

/// Appends the path of the setting that has the wrong type to `path`, and returns serde's message about it.
fn culprit<'a, S: DeserializeOwned>(path: &mut Vec<&'a str>, given: &'a Settings) -> Option<String> {
    for (name, value) in given {
        path.push(name);
        let nest = |inner, name: &&str| Value::Object([((*name).to_owned(), inner)].into_iter().collect());
        let alone = path.iter().rev().fold(value.clone(), nest);
        let message = serde_json::from_value::<S>(alone).err().map(|error| error.to_string());
        // A setting that is alone may miss others.
        if let Some(message) = message.filter(|message| !message.starts_with("missing field")) {
            let inner = value.as_object().and_then(|inner| culprit::<S>(path, inner));
            return Some(inner.unwrap_or(message));
        }
        path.pop();
    }
    None
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
            let expected = describe(*range.start(), *range.end());
            Err(Error::argument(place, format!("expected {expected}, got {number}")))
        }
    }
}

/// Describes a range: the smallest positive numbers, the largest ones and those closest to 1 are open limits.
fn describe(start: f64, end: f64) -> String {
    let is_open = start > 0.0 && start <= f64::from(f32::MIN_POSITIVE);
    let is_below_one = end < 1.0 && end > 1.0 - f64::from(f32::EPSILON);
    match (start, end) {
        (0.0, f64::MAX) => "a non-negative number".to_owned(),
        (_, f64::MAX) if is_open => "a positive number".to_owned(),
        (f64::MIN, _) => format!("a number of at most {end}"),
        (_, f64::MAX) => format!("a number of at least {start}"),
        _ if is_open => format!("a number above 0 and at most {end}"),
        _ if is_below_one => format!("a number of at least {start} and below 1"),
        _ => format!("a number from {start} to {end}"),
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
    fn ranges_without_a_limit_do_not_spell_it_out() {
        let message = |number, range| within("x", number, range).unwrap_err().message().to_owned();
        assert_eq!(message(-1.0, 0.0..=f64::MAX), "expected a non-negative number, got -1");
        assert_eq!(message(0.0, f64::MIN_POSITIVE..=f64::MAX), "expected a positive number, got 0");
        assert_eq!(message(1.0, -f64::MAX..=0.0), "expected a number of at most 0, got 1");
        assert_eq!(message(2.0, 0.0..=1.0), "expected a number from 0 to 1, got 2");
    }

    #[test]
    fn distant_names_are_not_suggested() {
        let message = |name, known: &[&str]| expected(name, known);
        assert!(!message("rate", &["name"]).contains("did you mean"));
        assert!(message("taks", &["task"]).contains("did you mean `task`?"));
    }
}
