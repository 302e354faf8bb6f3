//! Metadata values.

use super::cursor::GgufCursor;
use siskin_format::file::Bytes;
use siskin_format::{Error, Result};

/// Maximum nesting depth of arrays.
const MAX_ARRAY_DEPTH: usize = 4;

/// A metadata value. Arrays of numbers and strings are views into the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GgufValue {
    /// An unsigned integer of 8, 16, 32 or 64 bits.
    Unsigned(u64),
    /// A signed integer of 8, 16, 32 or 64 bits.
    Signed(i64),
    /// An f32.
    Float32(f32),
    /// An f64.
    Float64(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Text(String),
    /// An array of strings.
    Strings(StringArray),
    /// An array of numbers or booleans.
    Numbers(NumberArray),
    /// An array of arrays.
    Arrays(Vec<GgufValue>),
}

/// An array of length-prefixed strings in the file.
#[derive(Clone, Debug)]
pub struct StringArray {
    bytes: Bytes,
    count: usize,
}

impl StringArray {
    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if the array is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the bytes of the strings, in order. They need not be UTF-8.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.bytes;
        (0..self.count).map_while(move |_| {
            let (length, tail) = rest.split_first_chunk::<8>()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (text, tail) = tail.split_at_checked(length)?;
            rest = tail;
            Some(text)
        })
    }
}

/// An array of numbers of one type in the file.
#[derive(Clone, Debug)]
pub struct NumberArray {
    bytes: Bytes,
    number: Number,
}

impl NumberArray {
    /// Returns the numbers as stored in the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.number.size()
    }

    /// Returns true if the array is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn values(&self) -> impl Iterator<Item = GgufValue> {
        self.bytes.chunks_exact(self.number.size()).map(|chunk| self.number.read(chunk))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Unsigned(usize),
    Signed(usize),
    Float32,
    Float64,
    Bool,
}

impl Number {
    fn of(kind: u32) -> Option<Self> {
        Some(match kind {
            0 => Self::Unsigned(1),
            1 => Self::Signed(1),
            2 => Self::Unsigned(2),
            3 => Self::Signed(2),
            4 => Self::Unsigned(4),
            5 => Self::Signed(4),
            6 => Self::Float32,
            7 => Self::Bool,
            10 => Self::Unsigned(8),
            11 => Self::Signed(8),
            12 => Self::Float64,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Self::Unsigned(size) | Self::Signed(size) => size,
            Self::Float32 => 4,
            Self::Float64 => 8,
            Self::Bool => 1,
        }
    }

    /// Reads one number from exactly `self.size()` bytes.
    fn read(self, chunk: &[u8]) -> GgufValue {
        let mut wide = [0u8; 8];
        wide[..chunk.len()].copy_from_slice(chunk);
        let unsigned = u64::from_le_bytes(wide);
        match self {
            Self::Unsigned(_) => GgufValue::Unsigned(unsigned),
            Self::Signed(size) => {
                let unused = 64 - 8 * size as u32;
                GgufValue::Signed((unsigned << unused) as i64 >> unused)
            }
            Self::Float32 => GgufValue::Float32(f32::from_bits(unsigned as u32)),
            Self::Float64 => GgufValue::Float64(f64::from_bits(unsigned)),
            Self::Bool => GgufValue::Bool(unsigned != 0),
        }
    }
}

impl GgufValue {
    /// Reads the next value, which has type `kind`; `location` is its key.
    pub(super) fn read(cursor: &mut GgufCursor<'_>, kind: u32, depth: usize, location: &str) -> Result<Self> {
        match kind {
            8 => Ok(Self::Text(cursor.text(location)?.to_owned())),
            9 => Self::read_array(cursor, depth, location),
            _ => {
                let number = Number::of(kind).ok_or_else(|| {
                    Error::corrupt(
                        location,
                        format!("unknown value type {kind}; the file is damaged or needs a newer Siskin"),
                    )
                })?;
                let chunk = cursor.take(number.size(), location)?;
                match number {
                    Number::Bool if chunk[0] > 1 => {
                        Err(Error::corrupt(location, "a bool is neither 0 nor 1"))
                    }
                    _ => Ok(number.read(chunk)),
                }
            }
        }
    }

    fn read_array(cursor: &mut GgufCursor<'_>, depth: usize, location: &str) -> Result<Self> {
        if depth >= MAX_ARRAY_DEPTH {
            return Err(Error::corrupt(location, format!("arrays are nested deeper than {MAX_ARRAY_DEPTH}")));
        }
        let kind = cursor.u32(location)?;
        if let Some(number) = Number::of(kind) {
            let count = cursor.count(number.size(), location)?;
            let start = cursor.offset;
            cursor.take(count * number.size(), location)?;
            return Ok(Self::Numbers(NumberArray { bytes: view(cursor, start, location)?, number }));
        }
        match kind {
            8 => {
                let count = cursor.count(8, location)?;
                let start = cursor.offset;
                for _ in 0..count {
                    cursor.text_bytes(location)?;
                }
                Ok(Self::Strings(StringArray { bytes: view(cursor, start, location)?, count }))
            }
            9 => {
                let count = cursor.count(12, location)?;
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(Self::read_array(cursor, depth + 1, location)?);
                }
                Ok(Self::Arrays(values))
            }
            _ => Err(Error::corrupt(location, format!("array of the unknown value type {kind}"))),
        }
    }

    /// Returns the type of the value for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Unsigned(_) => "an unsigned integer",
            Self::Signed(_) => "a signed integer",
            Self::Float32(_) | Self::Float64(_) => "a float",
            Self::Bool(_) => "a bool",
            Self::Text(_) => "a string",
            Self::Strings(_) => "an array of strings",
            Self::Numbers(_) => "an array of numbers",
            Self::Arrays(_) => "an array of arrays",
        }
    }

    /// Returns a non-negative integer.
    pub fn as_unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// Returns an integer that fits i64.
    pub fn as_signed(&self) -> Option<i64> {
        match *self {
            Self::Unsigned(value) => i64::try_from(value).ok(),
            Self::Signed(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a number of any integer or float type.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            Self::Float32(value) => Some(f64::from(value)),
            Self::Float64(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an array of strings.
    pub fn as_strings(&self) -> Option<&StringArray> {
        match self {
            Self::Strings(strings) => Some(strings),
            _ => None,
        }
    }

    /// Returns an array of numbers.
    pub fn as_numbers(&self) -> Option<&NumberArray> {
        match self {
            Self::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// Returns an array if every element is a non-negative integer.
    pub fn as_unsigned_array(&self) -> Option<Vec<u64>> {
        self.as_numbers()?.values().map(|value| value.as_unsigned()).collect()
    }

    /// Returns an array if every element is an integer.
    pub fn as_signed_array(&self) -> Option<Vec<i64>> {
        self.as_numbers()?.values().map(|value| value.as_signed()).collect()
    }

    /// Returns an array if every element is a number.
    pub fn as_float_array(&self) -> Option<Vec<f32>> {
        self.as_numbers()?.values().map(|value| value.as_float().map(|value| value as f32)).collect()
    }
}

fn view(cursor: &GgufCursor<'_>, start: usize, location: &str) -> Result<Bytes> {
    cursor.bytes.slice(start..cursor.offset).ok_or_else(|| Error::corrupt(location, "lies outside the file"))
}
