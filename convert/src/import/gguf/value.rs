//! Metadata values.

use super::reader::Reader;
use siskin::file::Bytes;
use siskin::{Error, Result};

/// Arrays of arrays deeper than this are refused.
const DEEPEST_ARRAY: usize = 4;

/// One metadata value. Arrays of numbers and strings are views into the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An unsigned integer of 8, 16, 32 or 64 bits.
    Unsigned(u64),
    /// A signed integer of 8, 16, 32 or 64 bits.
    Signed(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// True or false.
    Bool(bool),
    /// A string.
    Text(String),
    /// An array of strings.
    Strings(StringArray),
    /// An array of numbers or truth values.
    Numbers(NumberArray),
    /// An array of arrays.
    Arrays(Vec<Value>),
}

/// An array of strings, one length-prefixed string after the other, in the file.
#[derive(Clone, Debug)]
pub struct StringArray {
    bytes: Bytes,
    count: usize,
}

impl StringArray {
    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The strings' bytes, in order. They need not be UTF-8.
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

/// An array of numbers of one type, in the file.
#[derive(Clone, Debug)]
pub struct NumberArray {
    bytes: Bytes,
    number: Number,
}

impl NumberArray {
    /// The numbers as they lie in the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.number.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn values(&self) -> impl Iterator<Item = Value> {
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
    fn read(self, chunk: &[u8]) -> Value {
        let mut wide = [0u8; 8];
        wide[..chunk.len()].copy_from_slice(chunk);
        let unsigned = u64::from_le_bytes(wide);
        match self {
            Self::Unsigned(_) => Value::Unsigned(unsigned),
            Self::Signed(size) => {
                let unused = 64 - 8 * size as u32;
                Value::Signed((unsigned << unused) as i64 >> unused)
            }
            Self::Float32 => Value::Float32(f32::from_bits(unsigned as u32)),
            Self::Float64 => Value::Float64(f64::from_bits(unsigned)),
            Self::Bool => Value::Bool(unsigned != 0),
        }
    }
}

impl Value {
    /// Reads the value of type `kind` that follows; `place` is its key.
    pub(super) fn read(reader: &mut Reader<'_>, kind: u32, depth: usize, place: &str) -> Result<Self> {
        match kind {
            8 => Ok(Self::Text(reader.text(place)?.to_owned())),
            9 => Self::read_array(reader, depth, place),
            _ => {
                let number = Number::of(kind).ok_or_else(|| {
                    Error::corrupt(
                        place,
                        format!("has the unknown value type {kind}; the file is damaged or too new"),
                    )
                })?;
                let chunk = reader.take(number.size(), place)?;
                match number {
                    Number::Bool if chunk[0] > 1 => Err(Error::corrupt(place, "a bool is neither 0 nor 1")),
                    _ => Ok(number.read(chunk)),
                }
            }
        }
    }

    fn read_array(reader: &mut Reader<'_>, depth: usize, place: &str) -> Result<Self> {
        if depth >= DEEPEST_ARRAY {
            return Err(Error::corrupt(place, format!("arrays are nested deeper than {DEEPEST_ARRAY}")));
        }
        let kind = reader.u32(place)?;
        if let Some(number) = Number::of(kind) {
            let count = reader.count(number.size(), place)?;
            let start = reader.offset;
            reader.take(count * number.size(), place)?;
            return Ok(Self::Numbers(NumberArray { bytes: view(reader, start, place)?, number }));
        }
        match kind {
            8 => {
                let count = reader.count(8, place)?;
                let start = reader.offset;
                for _ in 0..count {
                    reader.text_bytes(place)?;
                }
                Ok(Self::Strings(StringArray { bytes: view(reader, start, place)?, count }))
            }
            9 => {
                let count = reader.count(12, place)?;
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(Self::read_array(reader, depth + 1, place)?);
                }
                Ok(Self::Arrays(values))
            }
            _ => Err(Error::corrupt(place, format!("is an array of the unknown value type {kind}"))),
        }
    }

    /// What the value is, for messages.
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

    /// The integer, where it is one and not negative.
    pub fn as_unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The integer, where it is one that fits 64 signed bits.
    pub fn as_signed(&self) -> Option<i64> {
        match *self {
            Self::Unsigned(value) => i64::try_from(value).ok(),
            Self::Signed(value) => Some(value),
            _ => None,
        }
    }

    /// The number, of any integer or float type.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            Self::Float32(value) => Some(f64::from(value)),
            Self::Float64(value) => Some(value),
            _ => None,
        }
    }

    /// The truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The array of strings.
    pub fn as_strings(&self) -> Option<&StringArray> {
        match self {
            Self::Strings(strings) => Some(strings),
            _ => None,
        }
    }

    /// The array of numbers.
    pub fn as_numbers(&self) -> Option<&NumberArray> {
        match self {
            Self::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// The array, where every element is an integer that is not negative.
    pub fn as_unsigned_array(&self) -> Option<Vec<u64>> {
        self.as_numbers()?.values().map(|value| value.as_unsigned()).collect()
    }

    /// The array, where every element is an integer.
    pub fn as_signed_array(&self) -> Option<Vec<i64>> {
        self.as_numbers()?.values().map(|value| value.as_signed()).collect()
    }

    /// The array, where every element is a number.
    pub fn as_float_array(&self) -> Option<Vec<f32>> {
        self.as_numbers()?.values().map(|value| value.as_float().map(|value| value as f32)).collect()
    }
}

fn view(reader: &Reader<'_>, start: usize, place: &str) -> Result<Bytes> {
    reader.bytes.slice(start..reader.offset).ok_or_else(|| Error::corrupt(place, "lies outside the file"))
}
