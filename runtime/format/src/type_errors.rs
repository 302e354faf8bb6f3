//! Messages for values of the wrong type, in the words of the file format instead of Rust's.

/// Returns serde's message about a value in the words of the file format: `expected a non-negative integer, got "x"` for
/// `invalid type: string "x", expected usize`. `map` is what the format calls a map. Other messages are unchanged.
pub fn readable(message: &str, map: &str) -> String {
    let value = ["invalid type: ", "invalid value: "].iter().find_map(|start| message.strip_prefix(start));
    match value.and_then(|value| value.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("expected {}, got {}", wanted(expected, map), given(found, map)),
        None => message.replacen("unknown variant", "unknown value", 1),
    }
}

fn wanted<'a>(expected: &'a str, map: &'a str) -> &'a str {
    match expected {
        "usize" | "u64" => "a non-negative integer",
        "u32" => "an integer from 0 to 4294967295",
        "u16" => "an integer from 0 to 65535",
        "u8" => "an integer from 0 to 255",
        "isize" | "i64" | "i32" => "an integer",
        "f64" | "f32" => "a number",
        "a boolean" => "true or false",
        "a borrowed string" | "string or map" => "a string",
        "a sequence" => "a list",
        "a map" => map,
        other if other.starts_with("struct ") => map,
        other => other,
    }
}

fn given<'a>(found: &'a str, map: &'a str) -> &'a str {
    match found {
        "sequence" => "a list",
        "map" => map,
        "unit value" => "null",
        other => {
            let number = ["string ", "integer ", "floating point ", "boolean "]
                .iter()
                .find_map(|kind| other.strip_prefix(kind));
            number.map_or(other, |number| number.trim_matches('`'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_file_format() {
        let read = |error: serde_json::Error| {
            readable(error.to_string().split(" at line ").next().unwrap(), "a table")
        };
        let number = |text: &str| read(serde_json::from_str::<u64>(text).unwrap_err());
        assert_eq!(number("\"many\""), "expected a non-negative integer, got \"many\"");
        assert_eq!(number("\"a, expected b\""), "expected a non-negative integer, got \"a, expected b\"");
        assert_eq!(number("-1"), "expected a non-negative integer, got -1");
        assert_eq!(number("1.5"), "expected a non-negative integer, got 1.5");
        assert_eq!(number("true"), "expected a non-negative integer, got true");
        assert_eq!(number("[1]"), "expected a non-negative integer, got a list");
        assert_eq!(number("{}"), "expected a non-negative integer, got a table");
        assert_eq!(number("null"), "expected a non-negative integer, got null");
        let flag = serde_json::from_str::<bool>("1").unwrap_err();
        assert_eq!(read(flag), "expected true or false, got 1");
        let names = serde_json::from_str::<Vec<String>>("\"a\"").unwrap_err();
        assert_eq!(read(names), "expected a list, got \"a\"");
        assert_eq!(readable("missing field `name`", "a table"), "missing field `name`");
    }
}
