//! Files of a run's folder, which are complete or not there.

use std::io::Write;
use std::path::Path;

use siskin::file::AtomicFile;
use siskin::{Error, Result};

/// Puts `bytes` in the place of the file at `path`, all at once, without following a link.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create_own(path, |_| true)?;
    file.write_all(bytes).map_err(|error| Error::io(path.display().to_string(), &error))?;
    file.commit()
}
