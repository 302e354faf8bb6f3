//! Files whose paths Siskin chooses itself: caches, checkpoints, logs and reports.
//!
//! The creator of the folder, such as the author of a download, may have placed something else at such a path. Symbolic
//! links are therefore never followed, and a file is trusted only if no other user can write to it.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens the regular file at `path` for reading, without following a symbolic link. `None` if it does not exist.
pub fn open_no_follow(path: impl AsRef<Path>) -> Result<Option<File>> {
    let path = path.as_ref();
    if !check(path)? {
        return Ok(None);
    }
    open(path, OpenOptions::new().read(true)).map(Some)
}

/// Opens the regular file at `path` for appending, creating it if necessary, without following a symbolic link.
pub fn append_no_follow(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    check(path)?;
    let file = open(path, OpenOptions::new().create(true).append(true))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let location = || path.display().to_string();
        if file.metadata().map_err(|error| Error::io(location(), &error))?.nlink() > 1 {
            let message = "this is a hard link, whose other name would change too; remove it";
            return Err(Error::argument(location(), message));
        }
    }
    Ok(file)
}

/// Returns whether the file belongs to this user and no other user may write to it. Always true on systems without Unix
/// permissions.
pub fn is_private(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        const WRITABLE_BY_OTHERS: u32 = 0o022;
        file.metadata().is_ok_and(|facts| facts.uid() == user() && facts.mode() & WRITABLE_BY_OTHERS == 0)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        true
    }
}

/// Returns the effective user id of this process.
#[cfg(unix)]
fn user() -> u32 {
    // SAFETY: `geteuid` has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Rejects a symbolic link under a name that Siskin chose.
pub fn reject_link(path: &Path) -> Result<()> {
    if path.is_symlink() {
        let message =
            "this is a symbolic link, which Siskin does not follow for files that it names itself; remove it";
        return Err(Error::argument(path.display().to_string(), message));
    }
    Ok(())
}

/// Returns whether there is a regular file; anything else, a symbolic link included, is an error.
pub(super) fn check(path: &Path) -> Result<bool> {
    reject_link(path)?;
    let location = || path.display().to_string();
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io(location(), &error)),
    };
    if !facts.is_file() {
        return Err(Error::argument(location(), "not a regular file; remove it"));
    }
    Ok(true)
}

pub(super) fn open(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let io = |error| Error::io(path.display().to_string(), &error);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // If the file was replaced since the check, do not follow a link and do not block on a FIFO.
        options.mode(0o644).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let file = options.open(path).map_err(io)?;
    match file.metadata().map_err(io)?.is_file() {
        true => Ok(file),
        false => Err(Error::argument(path.display().to_string(), "not a regular file; remove it")),
    }
}
