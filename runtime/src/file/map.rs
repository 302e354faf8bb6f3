//! Maps a file read-only: the only place of the crate that asks the system for a map.

use super::Bytes;
use crate::{Error, ErrorKind, Result};
use std::fs::File;

impl Bytes {
    /// All bytes of an open file, mapped read-only: they are read when they are looked at.
    ///
    /// While they are alive, nobody may write to the file or shorten it: looking at a page that is gone ends the
    /// process. Replacing the file by renaming another over it, as [`AtomicFile`](super::AtomicFile) does, is safe.
    pub fn map(file: &File) -> Result<Self> {
        let length = file.metadata().map_err(|error| Error::io("map", &error))?.len();
        let length = usize::try_from(length)
            .map_err(|_| Error::new(ErrorKind::Memory, "map", "does not fit this machine's addresses"))?;
        // The system maps no empty file.
        if length == 0 { Ok(Self::default()) } else { map(file, 0, length, "map") }
    }
}

/// `length` bytes of `file` from `offset` on, shared with the page cache.
///
/// The offset need not be a multiple of the page size: the map then starts at the page below.
pub(super) fn map(file: &File, offset: u64, length: usize, place: &str) -> Result<Bytes> {
    // SAFETY: the map is read-only, and whoever opens a file promises, as documented on every function that
    // opens one, that nobody writes to it or shortens it while the map is alive.
    let map = unsafe { memmap2::MmapOptions::new().offset(offset).len(length).map(file) }
        .map_err(|error| Error::io(place, &error))?;
    Ok(Bytes::new(map))
}
