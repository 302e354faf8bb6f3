//! Files of the operator.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use siskin::{Error, ErrorKind, Result};

/// Reads a text file of at most `max_bytes`, whatever its size seems to be.
pub(crate) fn read_text(path: &Path, max_bytes: u64) -> Result<String> {
    let place = path.display().to_string();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(max_bytes + 1).read_to_string(&mut text))
        .map_err(|error| Error::io(place.clone(), &error))?;
    if text.len() as u64 > max_bytes {
        return Err(Error::new(ErrorKind::Corrupt, place, format!("is longer than {max_bytes} bytes")));
    }
    Ok(text)
}
