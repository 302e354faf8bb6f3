//! Atomic writes of files in a run's folder.

use std::io::Write;
use std::path::Path;

use siskin::file::AtomicFile;
use siskin::{Error, Result};

/// Atomically replaces the file at `path` by `bytes`, without following symbolic links.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create_own(path, |_| true)?;
    file.write_all(bytes).map_err(|error| Error::io(path.display().to_string(), &error))?;
    file.commit()
}
