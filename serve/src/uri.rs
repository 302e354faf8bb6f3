//! Parts of URIs.

use hyper::StatusCode;

use crate::error::ApiError;

/// Decodes `%20` and the like.
pub(crate) fn percent_decoded(text: &str) -> Result<String, ApiError> {
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

/// Returns the value of a parameter in a query string, such as `limit=3&order=asc`.
pub(crate) fn query_parameter(query: Option<&str>, name: &str) -> Result<Option<String>, ApiError> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.replace('+', " "));
    values.next().map(|value| percent_decoded(&value)).transpose()
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
    fn parameters_are_found() {
        let get = |name| query_parameter(Some("limit=3&after=a%2Bb+c&x"), name).unwrap();
        assert_eq!(get("limit").as_deref(), Some("3"));
        assert_eq!(get("after").as_deref(), Some("a+b c"));
        assert_eq!((get("x").as_deref(), get("y")), (Some(""), None));
        assert!(query_parameter(Some("a=%zz"), "a").is_err());
        assert_eq!(query_parameter(None, "a").unwrap(), None);
    }
}
