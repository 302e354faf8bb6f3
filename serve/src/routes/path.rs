//! Paths with arguments.

use hyper::StatusCode;

use crate::error::ApiError;

/// Returns the arguments in `path`, still encoded, if it matches `template`: what stands for the names in braces. A name
/// stands for one segment; at the end of the template, for all that are left.
pub(super) fn arguments<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let mut arguments = Vec::new();
    let mut left = path.strip_prefix('/')?;
    let mut names = template.strip_prefix('/')?.split('/').peekable();
    while let Some(name) = names.next() {
        let (segment, rest) = match names.peek() {
            Some(_) => left.split_once('/')?,
            None => (left, ""),
        };
        if name.starts_with('{') {
            if segment.is_empty() {
                return None;
            }
            arguments.push(segment);
        } else if name != segment {
            return None;
        }
        left = rest;
    }
    Some(arguments)
}

/// Decodes `%20` and the like.
pub(super) fn percent_decoded(text: &str) -> Result<String, ApiError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next().unwrap_or_default().as_bytes());
    let invalid = || ApiError::rejected(StatusCode::BAD_REQUEST, format!("invalid percent-encoding: {text}"));
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok()).ok_or_else(invalid)?;
        bytes.push(code);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_decoded() {
        assert_eq!(percent_decoded("Llama%203%2e1").unwrap(), "Llama 3.1");
        for wrong in ["%", "a%2", "%zz", "%ff", "%+1"] {
            assert!(percent_decoded(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_in_braces_stand_for_segments() {
        assert_eq!(arguments("/a/b", "/a/b").unwrap(), [""; 0]);
        assert_eq!(arguments("/", "/").unwrap(), [""; 0]);
        assert_eq!(arguments("/a/{x}", "/a/b/c").unwrap(), ["b/c"]);
        assert_eq!(arguments("/a/{x}/c/{y}", "/a/1/c/2").unwrap(), ["1", "2"]);
        for other in ["/a", "/a/", "/a//c/2", "/a/1/c", "/a/1/d/2", "a/1/c/2"] {
            assert!(arguments("/a/{x}/c/{y}", other).is_none(), "{other}");
        }
    }
}
