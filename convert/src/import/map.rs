//! Memory-maps source files: the only code of this crate that calls mmap.

use super::read;
use siskin_format::file::Bytes;
use siskin_format::{Error, Result};
use std::fs::File;
use std::path::Path;

/// Maps the file at `path` read-only.
pub(crate) fn map(path: &Path) -> Result<Bytes> {
    let location = path.display().to_string();
    read::is_there(path, &location)?;
    let file = File::open(path).map_err(|error| Error::io(&location, &error))?;
    let length = file.metadata().map_err(|error| Error::io(&location, &error))?.len();
    if length == 0 {
        return Err(Error::corrupt(location, "the file is empty"));
    }
    // SAFETY: the map is private and read-only, and `import::open` documents that the files of a source must not be
    // written to or truncated while the result is alive.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| Error::io(&location, &error))?;
    Ok(Bytes::new(map))
}
