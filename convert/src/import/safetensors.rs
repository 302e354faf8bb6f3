//! The safetensors container, read in place.
//!
//! Parsing is total: the header's length is checked against the file, and tensors must fill the data without gaps or
//! overlaps, each as long as its type and shape require.

use super::read::MAX_VALUES;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use siskin_format::file::{Bytes, parse_json};
use siskin_format::{Error, Result};
use std::collections::HashMap;
use std::fmt;

const MAX_HEADER_BYTES: u64 = 100_000_000;
const MAX_DIMENSIONS: usize = 8;

/// `(name, bytes per element)` of every dtype.
const TYPES: &[(&str, u64)] = &[
    ("F64", 8),
    ("F32", 4),
    ("F16", 2),
    ("BF16", 2),
    ("I64", 8),
    ("I32", 4),
    ("I16", 2),
    ("I8", 1),
    ("U64", 8),
    ("U32", 4),
    ("U16", 2),
    ("U8", 1),
    ("BOOL", 1),
    ("F8_E4M3", 1),
    ("F8_E5M2", 1),
];

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct SafetensorsTensor {
    /// The dtype, such as `BF16`.
    pub dtype: &'static str,
    /// The shape, slowest-varying dimension first.
    pub shape: Vec<u64>,
    /// The elements, little-endian.
    pub data: Bytes,
}

#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's object. Duplicate names are an error.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "__metadata__" => drop(map.next_value::<IgnoredAny>()?),
                        _ => entries.push((name, map.next_value()?)),
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Parses a whole file. Total on any bytes.
pub fn parse(bytes: Bytes) -> Result<HashMap<String, SafetensorsTensor>> {
    let length = bytes.first_chunk().copied().map(u64::from_le_bytes);
    let length = length.ok_or_else(|| Error::corrupt("header.length", "the file is shorter than 8 bytes"))?;
    let header = usize::try_from(length).ok().filter(|_| length <= MAX_HEADER_BYTES);
    let header = header.and_then(|length| bytes.get(8..)?.get(..length)).ok_or_else(|| {
        Error::corrupt("header.length", format!("{length} exceeds the file size; is the file complete?"))
    })?;
    let Header(mut entries) = parse_json(header, "header", MAX_VALUES)?;
    entries.sort_unstable_by_key(|(_, entry)| entry.data_offsets);
    let start = 8 + header.len();
    let data = bytes.slice(start..bytes.len()).unwrap_or_default();
    let mut tensors = HashMap::with_capacity(entries.len());
    let mut end = 0;
    for (name, entry) in entries {
        let location = |field: &str| format!("header: {name}.{field}");
        let (from, to) = entry.data_offsets;
        if from != end || to < from {
            return Err(Error::corrupt(location("data_offsets"), "leaves a gap or overlaps another tensor"));
        }
        end = to;
        let tensor = tensor(&data, entry).map_err(|error| error.within(&format!("header: {name}")))?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(Error::corrupt(format!("header: {name}"), "occurs twice"));
        }
    }
    match end == data.len() as u64 {
        true => Ok(tensors),
        false => Err(Error::corrupt("data", format!("{} bytes, but the tensors end at {end}", data.len()))),
    }
}

fn tensor(data: &Bytes, entry: Entry) -> Result<SafetensorsTensor> {
    let Some(&(dtype, size)) = TYPES.iter().find(|(name, _)| *name == entry.dtype) else {
        let name: String = entry.dtype.chars().take(20).collect();
        return Err(Error::unsupported("dtype", format!("element type '{name}'")));
    };
    if entry.shape.len() > MAX_DIMENSIONS {
        return Err(Error::corrupt("shape", format!("more than {MAX_DIMENSIONS} dimensions")));
    }
    let (from, to) = entry.data_offsets;
    let bytes = entry.shape.iter().try_fold(size, |product, &size| product.checked_mul(size));
    if bytes != Some(to - from) {
        let message = format!("{} bytes do not match {dtype} of shape {:?}", to - from, entry.shape);
        return Err(Error::corrupt("data_offsets", message));
    }
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let data = range.and_then(|(from, to)| data.slice(from..to));
    let data =
        data.ok_or_else(|| Error::corrupt("data_offsets", "reaches past the end; is the file complete?"))?;
    Ok(SafetensorsTensor { dtype, shape: entry.shape, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Bytes {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend((0..data).map(|i| i as u8));
        Bytes::new(bytes)
    }

    const TWO: &str = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},
        "a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}"#;

    #[test]
    fn tensors_are_found() {
        let tensors = parse(file(TWO, 12)).unwrap();
        assert_eq!((tensors["a"].dtype, &tensors["a"].shape[..]), ("F32", &[2, 1][..]));
        assert_eq!(&*tensors["b"].data, [8, 9, 10, 11]);
    }

    #[test]
    fn wrong_files_have_their_errors() {
        let error = |header: &str, data| parse(file(header, data)).map(|_| ()).unwrap_err().to_string();
        assert!(error(TWO, 11).contains("reaches past the end"));
        assert!(error(TWO, 13).starts_with("data: 13 bytes"));
        assert!(error("[]", 0).starts_with("header: wrong type"));
        assert!(error(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8).contains("gap"));
        assert!(
            error(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4)
                .contains("do not match F32")
        );
        assert!(error(r#"{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}"#, 4).contains("F99"));
        let huge = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}"#;
        assert!(error(huge, 4).contains("do not match F32"));
        let twice = r#"{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
            "a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#;
        assert!(error(twice, 0).contains("occurs twice"));
    }

    #[test]
    fn truncations_and_flips_never_panic() {
        let whole = file(TWO, 12).to_vec();
        for length in 0..whole.len() {
            assert!(parse(Bytes::new(whole[..length].to_vec())).is_err(), "cut at {length}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let _ = parse(Bytes::new(bytes));
            }
        }
    }
}
