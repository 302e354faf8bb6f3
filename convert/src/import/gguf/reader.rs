//! A cursor over bytes that never reads past the end.

use siskin::file::Bytes;
use siskin::{Error, Result};

/// Reads little-endian fields one after the other; every error names the place and the offset.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a Bytes,
    view: &'a [u8],
    pub(super) offset: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, view: bytes, offset: 0 }
    }

    pub(super) fn remaining(&self) -> usize {
        self.view.len() - self.offset
    }

    /// The next `length` bytes.
    pub(super) fn take(&mut self, length: usize, place: &str) -> Result<&'a [u8]> {
        if length > self.remaining() {
            return Err(Error::corrupt(
                place,
                format!(
                    "needs {length} bytes at offset {}, only {} are left; the file is cut off or damaged",
                    self.offset,
                    self.remaining()
                ),
            ));
        }
        let taken = &self.view[self.offset..self.offset + length];
        self.offset += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, place: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, place)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, place: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    pub(super) fn u64(&mut self, place: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    /// A count of things that take at least `least` bytes each: refused where they cannot be there.
    pub(super) fn count(&mut self, least: usize, place: &str) -> Result<usize> {
        let count = self.u64(place)?;
        self.bounded(count, least, place)
    }

    pub(super) fn bounded(&self, count: u64, least: usize, place: &str) -> Result<usize> {
        let most = self.remaining() / least.max(1);
        usize::try_from(count).ok().filter(|&count| count <= most).ok_or_else(|| {
            Error::corrupt(place, format!("claims {count} entries, the file has room for at most {most}"))
        })
    }

    /// A length-prefixed string's bytes.
    pub(super) fn text_bytes(&mut self, place: &str) -> Result<&'a [u8]> {
        let length = self.count(1, place)?;
        self.take(length, place)
    }

    /// A length-prefixed UTF-8 string.
    pub(super) fn text(&mut self, place: &str) -> Result<&'a str> {
        let bytes = self.text_bytes(place)?;
        std::str::from_utf8(bytes).map_err(|error| Error::corrupt(place, format!("is not UTF-8: {error}")))
    }
}
