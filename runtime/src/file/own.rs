//! Files whose names Siskin chooses itself: caches, checkpoints, logs and reports.
//!
//! Whoever made the folder, such as the author of a download, may have put something else under such a name. A symbolic
//! link is therefore never followed, and a file is only trusted if no other user can write to it.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens the regular file at `path` to read it, without following a symbolic link. `None` where there is nothing.
pub fn open_own(path: impl AsRef<Path>) -> Result<Option<File>> {
    let path = path.as_ref();
    if !check(path)? {
        return Ok(None);
    }
    open(path, OpenOptions::new().read(true)).map(Some)
}

/// Opens the regular file at `path` to append to it, and creates it where it is absent, without following a symbolic
/// link.
pub fn append_own(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    check(path)?;
    let file = open(path, OpenOptions::new().create(true).append(true))?;
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::nlink(
        &file.metadata().map_err(|error| Error::io(path.display().to_string(), &error))?,
    ) > 1
    {
        let message = "has another name, a hard link, which would change with it; remove it";
        return Err(Error::argument(path.display().to_string(), message));
    }
    Ok(file)
}

/// Whether the file belongs to this user and no other may write to it. Always true on systems without Unix permissions.
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

/// The effective user of this process.
#[cfg(unix)]
fn user() -> u32 {
    // SAFETY: `geteuid` has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether there is a regular file; an error where there is anything else, a symbolic link included.
pub(super) fn check(path: &Path) -> Result<bool> {
    let place = || path.display().to_string();
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io(place(), &error)),
    };
    if facts.is_symlink() {
        let message =
            "is a symbolic link; links are not followed for files that Siskin names itself: remove it";
        return Err(Error::argument(place(), message));
    }
    if !facts.is_file() {
        return Err(Error::argument(place(), "is not a regular file; remove it"));
    }
    Ok(true)
}

pub(super) fn open(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let io = |error| Error::io(path.display().to_string(), &error);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // What took the file's place since it was checked is not followed, and not waited for.
        options.mode(0o644).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let file = options.open(path).map_err(io)?;
    match file.metadata().map_err(io)?.is_file() {
        true => Ok(file),
        false => Err(Error::argument(path.display().to_string(), "is not a regular file; remove it")),
    }
}
