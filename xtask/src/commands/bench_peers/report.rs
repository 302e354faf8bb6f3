//! Parses the programs' output, and describes the machine.

use crate::shell::Result;
use std::fs;

/// Returns the text of the value of `key` in a flat JSON object; lists and strings verbatim.
pub(in crate::commands) fn value<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let start = json.find(&format!("\"{key}\""))? + key.len() + 2;
    let rest = json[start..].trim_start().strip_prefix(':')?.trim_start();
    let end = match rest.as_bytes().first()? {
        b'"' => rest[1..].find('"')? + 2,
        b'[' => rest.find(']')? + 1,
        _ => rest.find([',', '}', '\n']).unwrap_or(rest.len()),
    };
    Some(rest[..end].trim())
}

/// Returns the median of `key` over all reports.
pub(super) fn median(reports: &[String], key: &str) -> Result<f64> {
    let middle = numbers(reports, key).and_then(middle);
    middle.ok_or_else(|| format!("a report has no number `{key}`: {reports:?}"))
}

/// Returns the minimum and the maximum of `key` over all reports, for a table.
pub(super) fn range(reports: &[String], key: &str) -> Result<String> {
    let numbers = numbers(reports, key).filter(|numbers| !numbers.is_empty());
    let numbers = numbers.ok_or_else(|| format!("a report has no number `{key}`: {reports:?}"))?;
    let [min, max] = [f64::min, f64::max].map(|of| numbers.iter().copied().reduce(of).unwrap_or_default());
    Ok(format!("{min:.1}–{max:.1}"))
}

fn numbers(reports: &[String], key: &str) -> Option<Vec<f64>> {
    reports.iter().map(|json| value(json, key)?.parse::<f64>().ok()).collect()
}

/// Returns the median, or `None` for an empty list.
pub(super) fn middle(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    Some(if numbers.len() % 2 == 1 { upper } else { f64::midpoint(numbers[middle - 1], upper) })
}

/// Returns the processor's name.
pub(super) fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_flat_json() {
        let json = "{\"prompt_tok_s\": 12.5,\n \"kernels\":[\"a\", \"b\"], \"cpu\": \"x, y\", \"last\":3}";
        assert_eq!(value(json, "prompt_tok_s"), Some("12.5"));
        assert_eq!(value(json, "kernels"), Some("[\"a\", \"b\"]"));
        assert_eq!(value(json, "cpu"), Some("\"x, y\""));
        assert_eq!(value(json, "last"), Some("3"));
        assert_eq!(value(json, "none"), None);
    }

    #[test]
    fn medians_need_every_number() {
        let reports: Vec<_> = ["{\"a\": 3}", "{\"a\": 1}", "{\"a\": 2}"].map(str::to_owned).to_vec();
        assert_eq!(median(&reports, "a"), Ok(2.0));
        assert_eq!(median(&reports[..2], "a"), Ok(2.0));
        assert!(median(&reports, "b").is_err());
        assert!(median(&[], "a").is_err());
        assert_eq!(range(&reports, "a"), Ok("1.0–3.0".to_owned()));
        assert!(range(&[], "a").is_err());
    }
}
