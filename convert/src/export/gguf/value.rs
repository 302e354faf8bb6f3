//! Writes metadata values and tensor infos in GGUF's encoding.

use serde_json::Value as Json;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MetadataValue {
    Unsigned(u32),
    Float(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<Vec<u8>>),
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    Bools(Vec<bool>),
    Floats(Vec<f32>),
}

/// GGUF's value type ids.
const BYTE: u32 = 0;
const UNSIGNED: u32 = 4;
const INT: u32 = 5;
const FLOAT: u32 = 6;
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// Writes a string, prefixed by its length.
pub(super) fn text(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}

impl MetadataValue {
    /// Returns the value as JSON, or `None` for a type that no hyperparameter has.
    pub(super) fn json(&self) -> Option<Json> {
        Some(match self {
            Self::Unsigned(number) => (*number).into(),
            Self::Float(number) => f64::from(*number).into(),
            Self::Bool(truth) => (*truth).into(),
            Self::Text(text) => text.as_str().into(),
            Self::Ints(list) => list.as_slice().into(),
            Self::Bools(list) => list.as_slice().into(),
            Self::Floats(list) => list.iter().map(|&number| f64::from(number)).collect(),
            Self::Texts(_) | Self::Bytes(_) => return None,
        })
    }

    /// Writes the type id, then the value.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let array = |kind: u32, length: usize, out: &mut Vec<u8>| {
            out.extend(ARRAY.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((length as u64).to_le_bytes());
        };
        match self {
            Self::Unsigned(number) => {
                out.extend(UNSIGNED.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            Self::Float(number) => {
                out.extend(FLOAT.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            Self::Bool(truth) => {
                out.extend(BOOL.to_le_bytes());
                out.push(u8::from(*truth));
            }
            Self::Text(value) => {
                out.extend(TEXT.to_le_bytes());
                text(value.as_bytes(), out);
            }
            Self::Texts(texts) => {
                array(TEXT, texts.len(), out);
                texts.iter().for_each(|value| text(value, out));
            }
            Self::Bytes(bytes) => {
                array(BYTE, bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Self::Ints(numbers) => {
                array(INT, numbers.len(), out);
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Self::Bools(truths) => {
                array(BOOL, truths.len(), out);
                out.extend(truths.iter().map(|&truth| u8::from(truth)));
            }
            Self::Floats(numbers) => {
                array(FLOAT, numbers.len(), out);
                out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
        }
    }
}
