//! Small source files: regular ones, of bounded size.

use siskin::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// No text beside the weights is larger.
const LARGEST: u64 = 64 << 20;
/// Values of JSON that are read at once: the largest tokenizers have half as many.
pub(crate) const MOST_VALUES: usize = 1 << 22;

/// The contents of the file at `path`, or `None` where there is none. `place` is for errors.
///
/// Links are followed. What is no regular file is refused before it is opened, as it may have no end, or wait for
/// a writer.
pub(crate) fn read(path: &Path, place: &str) -> Result<Option<Vec<u8>>> {
    if !is_there(path, place)? {
        return Ok(None);
    }
    let io = |error: std::io::Error| Error::io(place, &error);
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(io)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(Error::corrupt(place, "is larger than 64 MiB")),
        false => Ok(Some(bytes)),
    }
}

/// Whether there is a regular file at `path`; an error where it is something else.
pub(crate) fn is_there(path: &Path, place: &str) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(true),
        Ok(_) => Err(Error::unsupported(place, "is not a regular file")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(place, &error)),
    }
}
