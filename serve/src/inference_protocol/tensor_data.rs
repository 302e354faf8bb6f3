//! The data of tensors: JSON, or bytes.

use std::fmt::Formatter;

use serde::Deserializer;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde_json::{Value, json};
use siskin::{Error, Result};

/// The maximum number of dimensions.
const MAX_DIMENSIONS: usize = 8;
/// The bytes of the length of an element of the type BYTES.
const LENGTH_BYTES: usize = 4;

/// The data of a tensor that a model returns.
#[derive(Debug, PartialEq)]
pub(super) enum OutputData {
    Bytes(Vec<String>),
    Fp32(Vec<f32>),
}

/// Appends texts in lists, which may be nested like the dimensions of the tensor.
struct TextCollector<'t>(&'t mut Vec<String>);

impl<'de> DeserializeSeed<'de> for TextCollector<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TextCollector<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("texts, or lists of them")
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<(), E> {
        self.0.push(text.to_owned());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        while list.next_element_seed(TextCollector(self.0))?.is_some() {}
        Ok(())
    }
}

/// Returns the number of elements of a tensor.
pub(super) fn element_count(shape: &[usize]) -> Result<usize> {
    let count = shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size));
    match count.filter(|_| (1..=MAX_DIMENSIONS).contains(&shape.len())) {
        Some(count) => Ok(count),
        None => {
            let message = format!("expected 1 to {MAX_DIMENSIONS} sizes, got {shape:?}");
            Err(Error::argument("shape", message))
        }
    }
}

/// Returns the texts of a tensor in JSON.
pub(super) fn texts_from_json(data: &str) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let read = TextCollector(&mut texts).deserialize(&mut serde_json::Deserializer::from_str(data));
    match read {
        Ok(()) => Ok(texts),
        Err(_) => Err(Error::argument("data", "expected texts, or lists of them")),
    }
}

/// Returns the texts of a tensor in bytes: each after its length.
pub(super) fn texts_from_bytes(mut data: &[u8]) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    while !data.is_empty() {
        let invalid = |message: &str| Error::argument("data", format!("element {}: {message}", texts.len()));
        let (length, rest) = data.split_first_chunk::<LENGTH_BYTES>().ok_or_else(|| invalid("incomplete"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (text, rest) = rest.split_at_checked(length).ok_or_else(|| invalid("incomplete"))?;
        let text = std::str::from_utf8(text).map_err(|_| invalid("not UTF-8"))?;
        texts.push(text.to_owned());
        data = rest;
    }
    Ok(texts)
}

impl OutputData {
    pub(super) fn datatype(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "BYTES",
            Self::Fp32(_) => "FP32",
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Bytes(texts) => json!(texts),
            Self::Fp32(numbers) => json!(numbers),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(texts) => {
                let mut bytes = Vec::new();
                for text in texts {
                    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    bytes.extend_from_slice(&length.to_le_bytes());
                    bytes.extend_from_slice(text.as_bytes());
                }
                bytes
            }
            Self::Fp32(numbers) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        let texts = ["a".to_owned(), String::new(), "ö\n".to_owned()];
        let data = OutputData::Bytes(texts.to_vec());
        assert_eq!(texts_from_bytes(&data.to_bytes()).unwrap(), texts);
        assert_eq!(texts_from_json(&data.to_json().to_string()).unwrap(), texts);
        assert_eq!(texts_from_json(r#"[["a", ""], ["ö\n"]]"#).unwrap(), texts);
        assert!(texts_from_json("[1]").is_err());
        for wrong in [&b"\0"[..], b"\x02\0\0\0a", b"\x01\0\0\0\xff", b"\xff\xff\xff\xff"] {
            assert!(texts_from_bytes(wrong).is_err());
        }
    }

    #[test]
    fn sizes_are_multiplied() {
        assert_eq!(element_count(&[3, 1, 2]).unwrap(), 6);
        assert_eq!(element_count(&[0]).unwrap(), 0);
        for wrong in [&[][..], &[usize::MAX, 2], &[1; 9]] {
            assert!(element_count(wrong).is_err());
        }
    }
}
