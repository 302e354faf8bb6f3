//! Reports as aligned tables of name, value and unit, or as one JSON object.

use crate::output;
use serde_json::Value;
use siskin::Result;

/// An entry of a report: its key in JSON, its name for people, and the unit of its value.
pub(crate) type ReportField = (&'static str, &'static str, &'static str);

/// Prints the entries of a report.
pub(crate) fn print(entries: Vec<(&str, Value)>, fields: &[ReportField], as_json: bool) -> Result<()> {
    match as_json {
        true => output::report(entries, true),
        false => lines(&entries, fields).into_iter().try_for_each(output::line),
    }
}

/// Returns a line per entry. Numbers are aligned at their decimal points.
fn lines(entries: &[(&str, Value)], fields: &[ReportField]) -> Vec<String> {
    let known = |key: &str| fields.iter().find(|(known, ..)| *known == key);
    let name = |key: &&str| known(key).map_or((*key).to_owned(), |(_, name, _)| (*name).to_owned());
    let width = entries.iter().map(|(key, _)| name(key).len()).max().unwrap_or(0);
    let numbers = entries.iter().filter_map(|(_, value)| number(value));
    let (whole, part) = numbers.fold((0, 0), |(whole, part), (digits, decimals)| {
        (whole.max(digits.len()), part.max(decimals.len()))
    });
    let line = |(key, value): &(&str, Value)| {
        let unit = known(key).map_or("", |(.., unit)| unit);
        let value = match number(value) {
            Some((digits, decimals)) => format!("{digits:>whole$}{decimals:<part$} {unit}"),
            None if value.is_null() => "unknown".to_owned(),
            None => output::text(value),
        };
        format!("{:<width$}  {value}", name(key)).trim_end().to_owned()
    };
    entries.iter().map(line).collect()
}

/// Returns the digits of a number before and from its decimal point.
fn number(value: &Value) -> Option<(String, String)> {
    let text = value.is_number().then(|| value.to_string())?;
    let point = text.find('.').unwrap_or(text.len());
    let (whole, part) = text.split_at(point);
    Some((whole.to_owned(), part.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_aligned() {
        let fields =
            [("open_ms", "load time", "ms"), ("tok_s", "decode", "tokens/s"), ("mib", "memory", "MiB")];
        let entries = [
            ("model", json!("a.gguf")),
            ("open_ms", json!(0.25)),
            ("tok_s", json!(1234.5)),
            ("threads", json!(16)),
            ("mib", Value::Null),
            ("kernels", json!(["avx2", "scalar"])),
        ];
        let expected = [
            "model      a.gguf",
            "load time     0.25 ms",
            "decode     1234.5  tokens/s",
            "threads      16",
            "memory     unknown",
            "kernels    avx2, scalar",
        ];
        assert_eq!(lines(&entries, &fields), expected);
    }
}
