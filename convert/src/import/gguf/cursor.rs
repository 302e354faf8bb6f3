//! A bounds-checked cursor over bytes.

use siskin_format::file::Bytes;
use siskin_format::{Error, Result};

/// Reads little-endian fields in order; every error names the location and the offset.
pub(super) struct GgufCursor<'a> {
    pub(super) bytes: &'a Bytes,
    view: &'a [u8],
    pub(super) offset: usize,
    /// Whether a field was not within the bytes.
    pub(super) ran_out: bool,
}

impl<'a> GgufCursor<'a> {
    pub(super) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, view: bytes, offset: 0, ran_out: false }
    }

    pub(super) fn remaining(&self) -> usize {
        self.view.len() - self.offset
    }

    /// Returns the next `length` bytes.
    pub(super) fn take(&mut self, length: usize, location: &str) -> Result<&'a [u8]> {
        if length > self.remaining() {
            self.ran_out = true;
            return Err(Error::corrupt(
                location,
                format!(
                    "unexpected end of file at offset {}: {length} bytes needed, {} left; the file is truncated or corrupt",
                    self.offset,
                    self.remaining()
                ),
            ));
        }
        let taken = &self.view[self.offset..self.offset + length];
        self.offset += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, location: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, location)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, location: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(location)?))
    }

    pub(super) fn u64(&mut self, location: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(location)?))
    }

    /// Reads a count of items of at least `least` bytes each. Rejects counts that exceed the remaining bytes.
    pub(super) fn count(&mut self, least: usize, location: &str) -> Result<usize> {
        let count = self.u64(location)?;
        self.bounded(count, least, location)
    }

    pub(super) fn bounded(&mut self, count: u64, least: usize, location: &str) -> Result<usize> {
        let max_count = self.remaining() / least.max(1);
        usize::try_from(count).ok().filter(|&count| count <= max_count).ok_or_else(|| {
            self.ran_out = true;
            Error::corrupt(
                location,
                format!("declares {count} entries, but the rest of the file can hold at most {max_count}"),
            )
        })
    }

    /// Reads the bytes of a length-prefixed string.
    pub(super) fn text_bytes(&mut self, location: &str) -> Result<&'a [u8]> {
        let length = self.count(1, location)?;
        self.take(length, location)
    }

    /// Reads a length-prefixed UTF-8 string.
    pub(super) fn text(&mut self, location: &str) -> Result<&'a str> {
        let bytes = self.text_bytes(location)?;
        std::str::from_utf8(bytes).map_err(|error| Error::corrupt(location, format!("not UTF-8: {error}")))
    }
}
