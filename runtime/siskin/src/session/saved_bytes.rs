//! The bytes of saved sessions.

use crate::{Error, Result};

/// A cursor over the bytes. Every length is checked against the bytes that remain before anything is allocated.
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| Error::corrupt("saved", "truncated"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const COUNT: usize>(&mut self) -> Result<&'a [u8; COUNT]> {
        self.take(COUNT)?.try_into().map_err(|_| Error::corrupt("saved", "truncated"))
    }

    pub(super) fn word(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(*self.array()?))
    }

    pub(super) fn words(&mut self) -> Result<Vec<u32>> {
        let bytes = (self.word()? as usize).saturating_mul(4);
        Ok(self.take(bytes)?.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        let length = self.word()? as usize;
        std::str::from_utf8(self.take(length)?)
            .map_err(|error| Error::corrupt("saved.messages", error.to_string()))
    }
}

/// Appends a number.
pub(super) fn put(out: &mut Vec<u8>, count: usize) -> Result<()> {
    let count = u32::try_from(count).map_err(|_| Error::unsupported("session", "too long to be saved"))?;
    out.extend(count.to_le_bytes());
    Ok(())
}

/// Appends a list of words after its length.
pub(super) fn put_all(out: &mut Vec<u8>, words: &[u32]) -> Result<()> {
    put(out, words.len())?;
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    Ok(())
}
