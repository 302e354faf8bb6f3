//! Atomic writes of files in a run's folder.

use std::path::Path;

use siskin_format::Result;
use siskin_format::file::AtomicFile;

/// Atomically replaces the file at `path` by `bytes`, without following symbolic links.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    AtomicFile::create_own(path, |_| true)?.commit_bytes(bytes)
}
