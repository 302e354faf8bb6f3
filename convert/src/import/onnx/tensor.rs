//! A tensor of a file: its header, and its data, inline or external.

use super::wire::{Wire, entry, fields};
use siskin_format::{Error, Result};
use std::borrow::Cow;

/// Maximum rank of a tensor.
pub(super) const MAX_DIMENSIONS: usize = 16;

/// `(id, name, bits per element)` of the numeric element types.
const TYPES: &[(u64, &str, u64)] = &[
    (1, "F32", 32),
    (2, "U8", 8),
    (3, "I8", 8),
    (4, "U16", 16),
    (5, "I16", 16),
    (6, "I32", 32),
    (7, "I64", 64),
    (9, "BOOL", 8),
    (10, "F16", 16),
    (11, "F64", 64),
    (12, "U32", 32),
    (13, "U64", 64),
    (14, "C64", 64),
    (15, "C128", 128),
    (16, "BF16", 16),
    (17, "F8_E4M3", 8),
    (18, "F8_E4M3FNUZ", 8),
    (19, "F8_E5M2", 8),
    (20, "F8_E5M2FNUZ", 8),
    (21, "U4", 4),
    (22, "I4", 4),
    (23, "F4_E2M1", 4),
];

/// The element type id of strings, which are parsed and ignored.
const TEXTS: u64 = 8;

/// The location of a tensor's data.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorData<'a> {
    /// Inline, little-endian.
    Here(Cow<'a, [u8]>),
    /// In another file of the folder.
    Beside {
        /// Its path within the folder, with `/` as separator.
        location: &'a str,
        /// The byte offset in the file.
        offset: u64,
        /// The number of bytes; if absent, it follows from type and shape.
        length: Option<u64>,
    },
}

/// A tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct OnnxTensor<'a> {
    /// Its name; empty in an attribute.
    pub name: &'a str,
    /// The element type id.
    pub kind: u64,
    /// The shape, slowest-varying dimension first.
    pub shape: Vec<u64>,
    /// The data.
    pub data: TensorData<'a>,
}

impl<'a> OnnxTensor<'a> {
    /// Parses the message and checks that the data has the declared size.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut tensor =
            Self { name: "", kind: 0, shape: Vec::new(), data: TensorData::Here(Cow::Borrowed(&[])) };
        let (mut beside, mut entries) = (false, Vec::new());
        // The type usually comes after the shape and before the data, but protobuf does not guarantee it.
        for field in fields(bytes, "tensor") {
            match field? {
                (2, wire) => tensor.kind = wire.number("data_type")?,
                (8, wire) => tensor.name = wire.text("name")?,
                (14, wire) => beside = wire.number("data_location")? == 1,
                _ => {}
            }
        }
        for field in fields(bytes, "tensor") {
            match field? {
                (1, wire) => {
                    let mut long = false;
                    wire.numbers("dims", &mut |size| match tensor.shape.len() < MAX_DIMENSIONS {
                        true => tensor.shape.push(size),
                        false => long = true,
                    })?;
                    if long {
                        let message = format!("more than {MAX_DIMENSIONS} dimensions");
                        return Err(Error::corrupt("dims", message));
                    }
                }
                (3, _) => return Err(Error::unsupported("segment", "segmented tensors are not supported")),
                (9, wire) => tensor.data = TensorData::Here(Cow::Borrowed(wire.bytes("raw_data")?)),
                (4 | 5 | 7 | 10 | 11, wire) => tensor.append(wire)?,
                (13, wire) if beside => entries.push(wire.bytes("external_data")?),
                _ => {}
            }
        }
        if beside {
            tensor.data = external(&entries)?;
        }
        tensor.check()?;
        Ok(tensor)
    }

    /// Appends data that is stored as a typed list.
    fn append(&mut self, wire: Wire<'a>) -> Result<()> {
        let TensorData::Here(data) = &mut self.data else { return Ok(()) };
        let width = bits(self.kind).unwrap_or(8).div_ceil(8) as usize;
        match wire {
            Wire::Four(number) => data.to_mut().extend(number.to_le_bytes()),
            Wire::Eight(number) => data.to_mut().extend(number.to_le_bytes()),
            // A packed list of floats has the layout of raw data.
            Wire::Bytes(bytes) if matches!(self.kind, 1 | 11 | 14 | 15) && data.is_empty() => {
                *data = Cow::Borrowed(bytes);
            }
            Wire::Bytes(bytes) if matches!(self.kind, 1 | 11 | 14 | 15) => data.to_mut().extend(bytes),
            wire => {
                let data = data.to_mut();
                wire.numbers("numbers", &mut |number| {
                    data.extend(&number.to_le_bytes()[..width.min(8)]);
                })?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.kind == TEXTS {
            return Ok(());
        }
        let wanted = self.bytes()?;
        let (found, place) = match &self.data {
            TensorData::Here(data) => (Some(data.len() as u64), "raw_data"),
            TensorData::Beside { length, .. } => (*length, "external_data.length"),
        };
        match found.is_none_or(|found| found == wanted) {
            true => Ok(()),
            false => {
                let message = format!(
                    "found {} bytes, expected {wanted} for {} of shape {:?}",
                    found.unwrap_or(0),
                    self.type_name(),
                    self.shape
                );
                Err(Error::corrupt(place, message))
            }
        }
    }

    /// Returns the number of bytes that type and shape require.
    pub fn bytes(&self) -> Result<u64> {
        let Some(bits) = bits(self.kind) else {
            return Err(Error::unsupported("data_type", format!("element type {}", self.kind)));
        };
        let numbers = self.shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        let bytes = numbers.and_then(|numbers| Some(numbers.checked_mul(bits)?.div_ceil(8)));
        bytes.ok_or_else(|| Error::corrupt("dims", format!("{:?} is too large", self.shape)))
    }

    /// Returns the element type's safetensors name; empty for strings.
    pub fn type_name(&self) -> &'static str {
        TYPES.iter().find(|(kind, ..)| *kind == self.kind).map_or("", |(_, name, _)| name)
    }

    /// Returns the number of elements.
    pub fn count(&self) -> u64 {
        self.shape.iter().fold(1, |product, &size| product.saturating_mul(size))
    }

    /// Returns the data if it is inline integers.
    pub fn integers(&self) -> Option<Vec<i64>> {
        let TensorData::Here(data) = &self.data else { return None };
        match self.kind {
            7 => Some(data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()),
            6 => {
                Some(data.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect())
            }
            _ => None,
        }
    }
}

fn bits(kind: u64) -> Option<u64> {
    TYPES.iter().find(|(known, ..)| *known == kind).map(|(.., bits)| *bits)
}

/// Parses the description of an external data file.
fn external<'a>(entries: &[&'a [u8]]) -> Result<TensorData<'a>> {
    let (mut location, mut offset, mut length) = ("", 0, None);
    for &bytes in entries {
        let (key, value) = entry(bytes)?;
        let number = || {
            let place = format!("external_data.{key}");
            value.parse::<u64>().map_err(|_| Error::corrupt(place, "not a number of bytes"))
        };
        match key {
            "location" => location = value,
            "offset" => offset = number()?,
            "length" => length = Some(number()?),
            _ => {}
        }
    }
    if location.is_empty() {
        return Err(Error::corrupt("external_data.location", "missing"));
    }
    Ok(TensorData::Beside { location, offset, length })
}
