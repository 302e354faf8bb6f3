//! Forms with files (`multipart/form-data`, RFC 7578).

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};

use crate::error::ApiError;

/// The maximum number of fields of a form.
const MAX_FIELDS: usize = 32;
/// The maximum size of the headers of a field, and of a field that is not a file.
const MAX_HEADER_BYTES: usize = 8 << 10;
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The maximum length of a boundary (RFC 2046).
const MAX_BOUNDARY_BYTES: usize = 70;

/// The fields of a form. Each is taken once; fields that remain are an error.
pub(crate) struct Form {
    fields: Vec<(String, Bytes)>,
}

impl Form {
    /// Parses the body of a request with these headers.
    pub(crate) fn parse(headers: &HeaderMap, body: &Bytes) -> Result<Self, ApiError> {
        let content_type =
            headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = boundary(content_type).ok_or_else(|| {
            let message = "expected the content type multipart/form-data with a boundary";
            ApiError::rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
        })?;
        let fields = parts(body, boundary)
            .map_err(|message| ApiError::rejected(StatusCode::BAD_REQUEST, format!("body: {message}")))?;
        Ok(Self { fields })
    }

    /// Takes a file.
    pub(crate) fn take_file(&mut self, name: &str) -> Result<Bytes, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::invalid(name, "missing"))
    }

    /// Takes a text; `None` if it is missing or empty.
    pub(crate) fn take_text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let Some(bytes) = self.take(name)? else { return Ok(None) };
        if bytes.len() > MAX_TEXT_BYTES {
            return Err(ApiError::invalid(name, format!("exceeds {MAX_TEXT_BYTES} bytes")));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| ApiError::invalid(name, "not UTF-8"))?;
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    /// Takes all texts of a name.
    pub(crate) fn take_texts(&mut self, name: &str) -> Result<Vec<String>, ApiError> {
        let mut texts = Vec::new();
        while let Some(at) = self.fields.iter().position(|(known, _)| known == name) {
            let (_, bytes) = self.fields.remove(at);
            let text = std::str::from_utf8(&bytes).map_err(|_| ApiError::invalid(name, "not UTF-8"))?;
            texts.push(text.to_owned());
        }
        Ok(texts)
    }

    /// Fails if a field remains.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.fields.first() {
            None => Ok(()),
            Some((name, _)) => Err(ApiError::invalid(name, "unknown field")),
        }
    }

    fn take(&mut self, name: &str) -> Result<Option<Bytes>, ApiError> {
        let Some(at) = self.fields.iter().position(|(known, _)| known == name) else { return Ok(None) };
        let (_, value) = self.fields.remove(at);
        match self.fields.iter().any(|(known, _)| known == name) {
            true => Err(ApiError::invalid(name, "given twice")),
            false => Ok(Some(value)),
        }
    }
}

/// Reads a form whose content type is the first line.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (content_type, body) = data.split_at(end);
    let Ok(content_type) = hyper::header::HeaderValue::from_bytes(content_type) else { return };
    let headers = HeaderMap::from_iter([(hyper::header::CONTENT_TYPE, content_type)]);
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    let Ok(mut form) = Form::parse(&headers, &body) else { return };
    let _ = (form.take_file("file"), form.take_text("model"), form.take_texts("list[]"));
    let _ = form.finish();
}

/// Returns the boundary in a content type.
fn boundary(content_type: &str) -> Option<&str> {
    let mut parameters = content_type.split(';').map(str::trim);
    if !parameters.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then_some(value.trim())
    })?;
    let boundary = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len()).then_some(boundary)
}

/// Returns the fields between the boundaries: their names and values.
fn parts(body: &Bytes, boundary: &str) -> Result<Vec<(String, Bytes)>, String> {
    let first = format!("--{boundary}");
    let delimiter = format!("\r\n--{boundary}");
    let mut at = match body.starts_with(first.as_bytes()) {
        true => first.len(),
        // A preamble is ignored.
        false => find(body, delimiter.as_bytes(), 0).ok_or("no boundary")? + delimiter.len(),
    };
    let mut fields = Vec::new();
    loop {
        if body[at..].starts_with(b"--") {
            return Ok(fields);
        }
        // White space may follow a boundary.
        at += body[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if !body[at..].starts_with(b"\r\n") {
            return Err("expected a line break after a boundary".to_owned());
        }
        if fields.len() == MAX_FIELDS {
            return Err(format!("more than {MAX_FIELDS} fields"));
        }
        let head_end = find(body, b"\r\n\r\n", at).ok_or("a field without an end of its headers")?;
        if head_end - at > MAX_HEADER_BYTES {
            return Err("the headers of a field are too long".to_owned());
        }
        let head = std::str::from_utf8(&body[at..head_end]).map_err(|_| "headers that are not UTF-8")?;
        let name = field_name(head).ok_or("a field without a name")?;
        let start = head_end + 4;
        // The value can be empty: the line break before the boundary may be the one after the headers.
        let end = find(body, delimiter.as_bytes(), head_end + 2).ok_or("no boundary after a field")?;
        fields.push((name, body.slice(start..end.max(start))));
        at = end + delimiter.len();
    }
}

/// Returns the `name` in `Content-Disposition: form-data; name="file"; filename="a.wav"`.
fn field_name(head: &str) -> Option<String> {
    let value = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value.trim())
    })?;
    let mut rest = value.strip_prefix("form-data")?;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        let (value, left) = parameter_value(after)?;
        if name.trim().eq_ignore_ascii_case("name") {
            return Some(value).filter(|name| !name.is_empty());
        }
        rest = left;
    }
}

/// Returns the value of a parameter, quoted or not, and what follows it.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    };
    let (mut value, mut is_escaped) = (String::new(), false);
    for (index, c) in quoted.char_indices() {
        match c {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return Some((value, &quoted[index + 1..])),
            c => {
                value.push(c);
                is_escaped = false;
            }
        }
    }
    None
}

/// Returns where `needle` begins in `bytes`, from `from` on.
fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let (&first, rest) = needle.split_first()?;
    let mut at = from;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == first)?;
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const TYPE: &str = "multipart/form-data; boundary=XX";

    fn parse(content_type: &str, body: &str) -> Result<Form, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        Form::parse(&headers, &Bytes::copy_from_slice(body.as_bytes()))
    }

    fn part(name: &str, value: &str) -> String {
        format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    #[test]
    fn fields_are_taken() {
        let body = format!(
            "preamble\r\n{}--XX \r\ncontent-type: audio/wav\r\nContent-Disposition: form-data; filename=\"a\\\"; \
             name=b.wav\"; name=file\r\n\r\n\0\r\n-\r\n--X\r\n{}{}--XX--\r\nepilogue",
            part("model", "m"),
            part("empty", ""),
            part("list[]", "1") + &part("list[]", "2"),
        );
        for content_type in [TYPE, "Multipart/Form-Data; charset=utf-8; Boundary=\"XX\""] {
            let mut form = parse(content_type, &body).unwrap();
            assert_eq!(form.take_text("model").unwrap().unwrap(), "m");
            assert_eq!(form.take_text("empty").unwrap(), None);
            assert_eq!(form.take_text("other").unwrap(), None);
            assert_eq!(&form.take_file("file").unwrap()[..], b"\0\r\n-\r\n--X");
            assert!(form.take_file("file").is_err());
            assert_eq!(form.take_texts("list[]").unwrap(), ["1", "2"]);
            assert!(form.finish().is_ok());
        }
    }

    #[test]
    fn wrong_forms_are_errors() {
        for content_type in ["", "application/json", "multipart/form-data", "multipart/form-data; boundary="]
        {
            assert!(parse(content_type, &(part("a", "b") + "--XX--")).is_err(), "{content_type}");
        }
        for body in [
            "",
            "--XX",
            "--XX\r\n",
            "--XX\r\n\r\n",
            &part("a", "b"),
            "--XX\r\nContent-Disposition: form-data; name=\"a\r\n\r\nb\r\n--XX--",
            "--XX\r\nContent-Disposition: form-data\r\n\r\nb\r\n--XX--",
            "--XXContent-Disposition: form-data; name=a\r\n\r\nb\r\n--XX--",
            &(part("a", "b").repeat(MAX_FIELDS + 1) + "--XX--"),
        ] {
            assert!(parse(TYPE, body).is_err(), "{body}");
        }
        let mut twice = parse(TYPE, &(part("a", "b") + &part("a", "c") + "--XX--")).unwrap();
        assert!(twice.take_text("a").is_err());
        assert!(parse(TYPE, &(part("a", "b") + "--XX--")).unwrap().finish().is_err());
    }

    #[test]
    fn any_bytes_are_a_form_or_an_error() {
        let whole = part("a", "b") + &part("c", "d") + "--XX--\r\n";
        for end in 0..whole.len() {
            let _ = parse(TYPE, &whole[..end]);
            let mut bytes = whole.clone().into_bytes();
            bytes[end] = b'-';
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
            let _ = Form::parse(&headers, &Bytes::from(bytes));
        }
    }
}
