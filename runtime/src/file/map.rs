//! Maps a file read-only: the only place of the crate that asks the system for a map.

use super::Bytes;
use crate::{Error, Result};
use std::fs::File;

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
