//! Names and text of generated files.

/// The maximum length of lines.
const WIDTH: usize = 120;

/// Converts `snake_case` to `camelCase`.
pub(super) fn camel(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &capital(word))
}

/// Capitalizes the first letter.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Capitalizes the first letter of a sentence.
pub(super) fn sentence(text: &str) -> String {
    capital(text.trim())
}

/// Breaks text into lines, each of which fits after `before` characters.
pub(super) fn wrap(text: &str, before: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if before + line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns true if a line fits.
pub(super) fn fits(line: &str) -> bool {
    line.chars().count() <= WIDTH
}

/// Replaces the constants of the header that a text names in backquotes.
pub(super) fn with_constants(
    text: &str,
    replacement: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let parts = text.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 0 {
            return Ok(part.to_owned());
        }
        if !part.to_ascii_lowercase().starts_with("siskin_") {
            return Ok(format!("`{part}`"));
        }
        replacement(part).ok_or_else(|| format!("`{part}` has no name in the wrappers: {text}"))
    });
    Ok(parts.collect::<Result<Vec<_>, String>>()?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lines_are_converted() {
        assert_eq!(camel("set_kv_cache_type"), "setKvCacheType");
        assert_eq!(camel("create_summary"), "createSummary");
        assert_eq!(wrap("aa bb cc", WIDTH - 5), ["aa bb", "cc"]);
        let named = with_constants("of `SISKIN_A`, `x`", |name| Some(name.to_lowercase()));
        assert_eq!(named.as_deref(), Ok("of siskin_a, `x`"));
        assert!(with_constants("`siskin_x`", |_| None).is_err());
    }
}
