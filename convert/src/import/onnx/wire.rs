//! The protobuf wire format: fields by number, read in place. Total on any bytes.

use siskin_format::{Error, Result};

/// The contents of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    /// A varint of up to 64 bits.
    Number(u64),
    /// Four bytes, little-endian.
    Four(u32),
    /// Eight bytes, little-endian.
    Eight(u64),
    /// A length-delimited field: a string, bytes, a message, or a packed list.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    /// Returns the contents of a message, string or bytes field.
    pub(super) fn bytes(self, location: &str) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Error::corrupt(location, "expected a message or string, found a number")),
        }
    }

    /// Returns a string.
    pub(super) fn text(self, location: &str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(location)?)
            .map_err(|error| Error::corrupt(location, format!("not UTF-8: {error}")))
    }

    /// Returns an integer; negative ones in two's complement.
    pub(super) fn number(self, location: &str) -> Result<u64> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Error::corrupt(location, "not the wire type of a number")),
        }
    }

    /// Calls `each` with the integers of a list, which is one value or several packed ones.
    pub(super) fn numbers(self, location: &str, each: &mut dyn FnMut(u64)) -> Result<()> {
        match self {
            Self::Number(number) => each(number),
            Self::Bytes(mut rest) => {
                while !rest.is_empty() {
                    let (number, after) = varint(rest).ok_or_else(|| cut(location))?;
                    each(number);
                    rest = after;
                }
            }
            _ => return Err(Error::corrupt(location, "not the wire type of a list of numbers")),
        }
        Ok(())
    }
}

fn cut(location: &str) -> Error {
    Error::corrupt(location, "ends in the middle of a field; is the file complete?")
}

/// Decodes a varint, seven bits per byte, and returns the remaining bytes.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        if index == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// Iterates over the fields of a message. Stops after an error.
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
    location: &'a str,
}

/// Returns the fields of the message `bytes`; `location` is for errors.
pub(super) fn fields<'a>(bytes: &'a [u8], location: &'a str) -> WireFields<'a> {
    WireFields { rest: bytes, location }
}

/// Counts the occurrences of field `number`, up to the first error.
pub(super) fn count(bytes: &[u8], number: u64) -> usize {
    fields(bytes, "").filter(|field| field.as_ref().is_ok_and(|(found, _)| *found == number)).count()
}

impl<'a> WireFields<'a> {
    fn one(&mut self) -> Option<(u64, Wire<'a>)> {
        let (key, rest) = varint(self.rest)?;
        let (wire, rest) = match key & 7 {
            0 => varint(rest).map(|(number, rest)| (Wire::Number(number), rest))?,
            1 => rest
                .split_first_chunk()
                .map(|(bytes, rest)| (Wire::Eight(u64::from_le_bytes(*bytes)), rest))?,
            2 => {
                let (length, rest) = varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Wire::Bytes(bytes), rest)
            }
            5 => rest
                .split_first_chunk()
                .map(|(bytes, rest)| (Wire::Four(u32::from_le_bytes(*bytes)), rest))?,
            _ => return None,
        };
        self.rest = rest;
        Some((key >> 3, wire))
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.one().ok_or_else(|| {
            self.rest = &[];
            cut(self.location)
        }))
    }
}

/// Parses a key and its value.
pub(super) fn entry(bytes: &[u8]) -> Result<(&str, &str)> {
    let (mut key, mut value) = ("", "");
    for field in fields(bytes, "entry") {
        match field? {
            (1, wire) => key = wire.text("entry.key")?,
            (2, wire) => value = wire.text("entry.value")?,
            _ => {}
        }
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_specification() {
        // The examples of protobuf.dev's page on the encoding: 150, "testing", and 3, 270, 86942 packed.
        let read = |bytes: &'static [u8]| fields(bytes, "x").collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(read(&[0x08, 0x96, 0x01]), [(1, Wire::Number(150))]);
        assert_eq!(read(b"\x12\x07testing"), [(2, Wire::Bytes(b"testing"))]);
        let packed = read(&[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05])[0].1;
        let mut numbers = Vec::new();
        packed.numbers("x", &mut |number| numbers.push(number)).unwrap();
        assert_eq!(numbers, [3, 270, 86942]);
        let minus_two = [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let field = fields(&minus_two, "x").next().unwrap().unwrap().1;
        assert_eq!(field.number("x").unwrap() as i64, -2);
    }

    #[test]
    fn what_is_cut_or_too_long_is_rejected() {
        for bytes in [
            &[0x08][..],
            &[0x08, 0x96],
            &[0x12, 0x08, b'x'],
            &[0x0d, 1, 2],
            &[0x09, 1, 2, 3],
            &[0x0b],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        ] {
            assert!(fields(bytes, "x").any(|field| field.is_err()), "{bytes:?}");
        }
    }
}
