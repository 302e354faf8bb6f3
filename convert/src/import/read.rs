//! Reads small source files: regular files of bounded size.

use siskin_format::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Size limit of files other than weights.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum number of JSON values parsed at once: the largest tokenizers have half as many.
pub(crate) const MAX_VALUES: usize = 1 << 22;

/// Returns the contents of the file at `path`, or `None` if it is missing. `location` is for errors.
///
/// Symbolic links are followed. Anything but a regular file is rejected before it is opened: reading it might never end,
/// or block until there is a writer.
pub(crate) fn read(path: &Path, location: &str) -> Result<Option<Vec<u8>>> {
    if !is_there(path, location)? {
        return Ok(None);
    }
    let io = |error: std::io::Error| Error::io(location, &error);
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(Error::corrupt(location, "larger than 64 MiB")),
        false => Ok(Some(bytes)),
    }
}

/// Returns true if there is a regular file at `path`, or an error if it is not a regular file.
pub(crate) fn is_there(path: &Path, location: &str) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(true),
        Ok(_) => Err(Error::unsupported(location, "not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(location, &error)),
    }
}
