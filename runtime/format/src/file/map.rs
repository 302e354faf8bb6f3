//! Maps files read-only: the only location of the crate that memory-maps files.

use super::Bytes;
use crate::{Error, ErrorKind, Result};
use std::fs::File;

impl Bytes {
    /// Maps an open file read-only; pages are read when they are accessed.
    ///
    /// While the bytes are alive, the file must not be written or truncated: accessing a page that is gone kills the
    /// process (SIGBUS on Unix). Replacing the file by renaming another over it, as [`AtomicFile`](super::AtomicFile)
    /// does, is safe.
    pub fn map(file: &File) -> Result<Self> {
        let length = file.metadata().map_err(|error| Error::io("map", &error))?.len();
        let length = usize::try_from(length)
            .map_err(|_| Error::new(ErrorKind::Memory, "map", "exceeds the address space of this machine"))?;
        // Empty files cannot be mapped.
        if length == 0 { Ok(Self::default()) } else { map(file, 0, length, "map") }
    }
}

/// Maps `length` bytes of `file` from `offset` on, shared with the page cache.
///
/// The offset need not be a multiple of the page size: the map then starts at the page boundary before it.
pub(super) fn map(file: &File, offset: u64, length: usize, location: &str) -> Result<Bytes> {
    // SAFETY: the map is read-only, and `Bytes::map`, `File::open` and `File::open_descriptor` document that the file
    // must not be written or truncated while the map is alive.
    let map = unsafe { memmap2::MmapOptions::new().offset(offset).len(length).map(file) }
        .map_err(|error| Error::io(location, &error))?;
    Ok(Bytes::new(map))
}
