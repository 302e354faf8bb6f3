//! Atomic file writes: a temporary file is flushed to disk and renamed to the target.

use super::no_follow;
use crate::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file is not replaced.
const FOREIGN: &str = "exists and was not written by Siskin; remove it or choose another path";

static NEXT: AtomicU64 = AtomicU64::new(0);
/// Attempts before giving up on finding an unused temporary name.
const MAX_ATTEMPTS: u64 = 1 << 16;

/// The maximum length of a chain of symbolic links.
const MAX_LINKS: usize = 40;

/// Writes to a temporary file in the target's folder, which [`AtomicFile::commit`] renames to the target. If dropped
/// before that, it removes the temporary file and leaves an existing target unchanged. Temporary files of killed
/// processes are removed when the same target is written again.
///
/// A target path given by the user that is a symbolic link is followed; for a path chosen by Siskin itself use
/// [`AtomicFile::create_own`]. An existing target must be a writable regular file.
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
        Self::create_from(target, &[])
    }

    /// Like [`AtomicFile::create`], but rejects a target that is one of the input files. Missing inputs are ignored.
    pub fn create_from(target: impl AsRef<Path>, inputs: &[PathBuf]) -> Result<Self> {
        Self::check(&target, inputs)?;
        let target = resolved(target.as_ref(), &target.as_ref().display().to_string())?;
        Self::begin(target, Access::Default)
    }

    /// As [`AtomicFile::create_from`], but replaces only an empty file or one that begins with one of `magics`.
    pub fn create_over(target: impl AsRef<Path>, inputs: &[PathBuf], magics: &[[u8; 8]]) -> Result<Self> {
        let target = target.as_ref();
        let location = || target.display().to_string();
        Self::check(target, inputs)?;
        if fs::metadata(target).is_ok_and(|metadata| metadata.len() > 0) {
            let mut file = File::open(target).map_err(|error| Error::io(location(), &error))?;
            let mut start = [0; 8];
            if file.read_exact(&mut start).is_err() || !magics.contains(&start) {
                return Err(Error::argument(location(), FOREIGN));
            }
        }
        Self::create_from(target, inputs)
    }

    /// Creates the temporary file for a target whose path Siskin chose itself. A symbolic link is rejected, and an
    /// existing file is replaced only if `is_ours` recognizes it as written by Siskin. The new file is writable by this
    /// user only.
    pub fn create_own(target: impl AsRef<Path>, is_ours: impl FnOnce(File) -> bool) -> Result<Self> {
        Self::create_chosen(target.as_ref(), is_ours, Access::Readable)
    }

    /// Like [`AtomicFile::create_own`], but the new file can be read by this user only.
    pub fn create_private(target: impl AsRef<Path>, is_ours: impl FnOnce(File) -> bool) -> Result<Self> {
        Self::create_chosen(target.as_ref(), is_ours, Access::Private)
    }

    fn create_chosen(target: &Path, is_ours: impl FnOnce(File) -> bool, access: Access) -> Result<Self> {
        let location = target.display().to_string();
        if let Some(file) = no_follow::open_no_follow(target)? {
            Self::check(target, &[])?;
            if !is_ours(file) {
                return Err(Error::argument(location, FOREIGN));
            }
        }
        Self::begin(target.to_owned(), access)
    }

    /// Returns another handle of the unfinished file, to read what was written.
    pub fn reopen(&self) -> Result<File> {
        self.file.try_clone().map_err(|error| Error::io(self.target.display().to_string(), &error))
    }

    /// Checks a target as [`AtomicFile::create_from`] does, without creating anything: to fail early, before long work.
    pub fn check(target: impl AsRef<Path>, inputs: &[PathBuf]) -> Result<()> {
        check(target.as_ref(), inputs, &target.as_ref().display().to_string())
    }

    fn begin(target: PathBuf, access: Access) -> Result<Self> {
        let location = target.display().to_string();
        let name = target.file_name().ok_or_else(|| Error::argument(&location, "not a file name"))?;
        sweep(&target, name);
        let (temporary, file) = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{}-{number}.part", std::process::id()));
            let temporary = target.with_file_name(hidden);
            match new_file(&temporary, access) {
                Ok(file) if is_ours(&file, &temporary) => break (temporary, file),
                // Another process is removing it.
                Ok(_) if number < MAX_ATTEMPTS => {}
                Ok(_) => return Err(Error::io(location, &io::ErrorKind::ResourceBusy.into())),
                // Left behind by an earlier process with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_ATTEMPTS => {}
                Err(error) => return Err(cannot_create(&target, &error)),
            }
        };
        Ok(Self { file, temporary, target, committed: false })
    }

    /// Flushes the file to disk and atomically replaces the target with it.
    pub fn commit(self) -> Result<()> {
        self.sync()?;
        self.appear()
    }

    /// Commits several files: all are flushed to disk before the first is renamed.
    pub fn commit_all(files: impl IntoIterator<Item = Self>) -> Result<()> {
        let files: Vec<Self> = files.into_iter().collect();
        files.iter().try_for_each(Self::sync)?;
        files.into_iter().try_for_each(Self::appear)
    }

    /// Writes the file's bytes and commits it.
    pub fn commit_bytes(mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::io(self.target.display().to_string(), &error))?;
        self.commit()
    }

    /// Like [`AtomicFile::commit`], but also returns the open file, which stays valid if the target is replaced later.
    pub fn commit_and_keep(self) -> Result<File> {
        let file = self.reopen()?;
        self.commit()?;
        Ok(file)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| Error::io(self.target.display().to_string(), &error))
    }

    fn appear(mut self) -> Result<()> {
        let location = self.target.display().to_string();
        fs::rename(&self.temporary, &self.target).map_err(|error| Error::io(&location, &error))?;
        self.committed = true;
        sync_folder(&self.target);
        Ok(())
    }
}

/// Returns the error for a temporary file that cannot be created next to `target`.
fn cannot_create(target: &Path, error: &io::Error) -> Error {
    let location = target.display().to_string();
    match target.parent() {
        Some(folder) if error.kind() == io::ErrorKind::NotFound => Error::new(
            ErrorKind::Io,
            location,
            format!("the directory `{}` does not exist", folder.display()),
        ),
        _ => Error::io(location, error),
    }
}

/// Who may use a new file, on systems with Unix permissions.
#[derive(Clone, Copy)]
enum Access {
    /// As the umask says.
    Default,
    /// This user may write, all may read.
    Readable,
    /// This user.
    Private,
}

fn new_file(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    match access {
        Access::Default => {}
        Access::Readable => drop(std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644)),
        Access::Private => drop(std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600)),
    }
    #[cfg(not(unix))]
    let _ = access;
    options.open(path)
}

/// Follows symbolic links from `target`.
fn resolved(target: &Path, location: &str) -> Result<PathBuf> {
    let mut target = target.to_owned();
    for _ in 0..MAX_LINKS {
        if !fs::symlink_metadata(&target).is_ok_and(|metadata| metadata.is_symlink()) {
            return Ok(target);
        }
        let next = fs::read_link(&target).map_err(|error| Error::io(location, &error))?;
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(Error::argument(location, "too many symbolic links in a chain"))
}

/// Rejects a target that must not be replaced.
fn check(target: &Path, inputs: &[PathBuf], location: &str) -> Result<()> {
    let metadata = match fs::metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(location, &error)),
    };
    if !metadata.is_file() {
        return Err(Error::argument(location, "not a regular file; choose another path"));
    }
    if inputs.iter().any(|input| is_same(input, target)) {
        return Err(Error::argument(location, "this is an input file; choose another path"));
    }
    match metadata.permissions().readonly() {
        true => Err(Error::argument(location, "the file is read-only; remove it or choose another path")),
        false => Ok(()),
    }
}

/// Returns whether two paths refer to the same file.
#[cfg(unix)]
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Returns whether two paths refer to the same file.
#[cfg(not(unix))]
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::canonicalize(path).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Locks a new temporary file to mark it as in use. Returns `false` if another process is removing it.
fn is_ours(file: &File, temporary: &Path) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && temporary.exists()
}

/// Removes temporary files of `target` that are not being written: a lock ends with its process. If the system cannot
/// lock files, they stay.
fn sweep(target: &Path, name: &OsStr) {
    let Ok(entries) = fs::read_dir(folder_of(target)) else { return };
    for entry in entries.flatten().filter(|entry| is_part(&entry.file_name(), name)) {
        let path = entry.path();
        // Skip anything but regular files: they are not ours, and opening a FIFO might block.
        if entry.file_type().is_ok_and(|kind| kind.is_file())
            && let Ok(file) = no_follow::open(&path, OpenOptions::new().write(true))
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns whether `part` is the name of a temporary file of the target `name`: `.NAME.PROCESS-NUMBER.part`.
fn is_part(part: &OsStr, name: &OsStr) -> bool {
    let numbers = || {
        let rest = part.as_encoded_bytes().strip_prefix(b".")?.strip_prefix(name.as_encoded_bytes())?;
        std::str::from_utf8(rest.strip_prefix(b".")?.strip_suffix(b".part")?).ok()?.split_once('-')
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers().is_some_and(|(process, number)| is_number(process) && is_number(number))
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the rename durable on systems where folders can be synced; elsewhere renames are already ordered.
fn sync_folder(target: &Path) {
    if let Ok(folder) = File::open(folder_of(target)) {
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
