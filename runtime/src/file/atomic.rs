//! A file that appears under its name only when it is complete.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);
/// Numbers tried before giving up on a name that nobody else has.
const MOST_LEFT: u64 = 1 << 16;

/// Writes go to a temporary file beside the target; [`AtomicFile::commit`] renames it. Dropped before that, it
/// removes the temporary file and leaves what stood under the target's name as it was.
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl AtomicFile {
    /// Creates the temporary file in the target's folder.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        let target = target.as_ref().to_owned();
        let place = target.display().to_string();
        let name = target.file_name().ok_or_else(|| Error::argument(&place, "is not the name of a file"))?;
        let (temporary, file) = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{number}.part", std::process::id()));
            let temporary = target.with_file_name(hidden);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&temporary) {
                Ok(file) => break (temporary, file),
                // A process of the same number left it behind.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_LEFT => {}
                Err(error) => return Err(Error::io(temporary.display().to_string(), &error)),
            }
        };
        Ok(Self { file, temporary, target, committed: false })
    }

    /// Makes the bytes durable and puts them under the target's name, in place of what was there.
    pub fn commit(mut self) -> Result<()> {
        let place = self.target.display().to_string();
        self.file.sync_all().map_err(|error| Error::io(&place, &error))?;
        fs::rename(&self.temporary, &self.target).map_err(|error| Error::io(&place, &error))?;
        self.committed = true;
        sync_folder(&self.target);
        Ok(())
    }
}

/// Makes the rename durable where the system lets folders be synchronised; elsewhere it is already ordered.
fn sync_folder(target: &Path) {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}
