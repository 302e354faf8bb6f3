//! The cache on disk, in the layout of Hugging Face: a folder for each repository, with `blobs/DIGEST`, `refs/NAME`, which
//! holds a version, and `snapshots/VERSION/PATH`, which link to the blobs. What other tools downloaded is found there, and
//! the reverse.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use siskin_format::{Error, Result};

use crate::digest::{FileDigest, sha256};
use crate::name::is_relative;
use crate::record::PullRecord;
use crate::url::escape_path;

/// The maximum length of a file name, with room for an extension.
const MAX_NAME_BYTES: usize = 200;
/// How long a tool may take to link a blob after its last byte.
const LINK_TIME: Duration = Duration::from_secs(60);

/// The folder of a repository.
#[derive(Clone, Debug)]
pub(crate) struct RepositoryFolder {
    folder: PathBuf,
}

impl RepositoryFolder {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the name of the repository if it is one of Hugging Face.
    pub(crate) fn repository_of_hugging_face(&self) -> Option<String> {
        let name = self.folder.file_name()?.to_str()?.strip_prefix("models--")?;
        Some(name.replacen("--", "/", 1)).filter(|name| name.contains('/'))
    }

    /// Locks the folder until the guard is dropped: of two processes that pull the same model, one waits.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.folder.join(".siskin-lock");
        let lock = || {
            create_parent(&path)?;
            let file = File::create(&path)?;
            file.lock().map(|()| file)
        };
        lock().map_err(|error| Error::io(path.display().to_string(), &error))
    }

    /// Returns the file that a version has at a path, if it is in the cache.
    pub(crate) fn find(&self, version: &str, path: &str) -> Option<PathBuf> {
        let file = self.snapshot(version, path).ok()?;
        file.is_file().then_some(file)
    }

    /// Returns the folder of a version, if it is in the cache.
    pub(crate) fn snapshot_folder(&self, version: &str) -> Option<PathBuf> {
        let folder = self.folder.join("snapshots").join(checked(version).ok()?);
        folder.is_dir().then_some(folder)
    }

    /// Returns the paths of the files of a version that are in the cache.
    pub(crate) fn paths(&self, version: &str) -> Vec<String> {
        let mut paths = Vec::new();
        if let Some(folder) = self.snapshot_folder(version) {
            add_paths(&folder, "", &mut paths);
        }
        paths.sort();
        paths
    }

    /// Returns the version that a name, such as a branch, had when it was last looked up.
    pub(crate) fn version_of(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.join("refs").join(checked(name).ok()?)).ok()?;
        Some(text.trim().to_owned()).filter(|version| is_relative(version))
    }

    /// Records the version that a name has now.
    pub(crate) fn record_version(&self, name: &str, version: &str) -> Result<()> {
        let path = self.folder.join("refs").join(checked(name)?);
        if self.version_of(name).as_deref() == Some(version) {
            return Ok(());
        }
        let write = || {
            create_parent(&path)?;
            replace(&path, version.as_bytes())
        };
        write().map_err(|error| Error::io(path.display().to_string(), &error))
    }

    /// Returns the versions that are in the cache, some of their files at least.
    pub(crate) fn versions(&self) -> Vec<String> {
        let mut versions = names_in(&self.folder.join("snapshots"));
        versions.sort();
        versions
    }

    /// Returns the record of a pinned name. One that cannot be read does not count.
    pub(crate) fn read_record(&self, name: &str) -> Option<PullRecord> {
        let record: PullRecord = serde_json::from_slice(&std::fs::read(self.record_path(name)).ok()?).ok()?;
        (record.name == name).then_some(record)
    }

    /// Returns all records.
    pub(crate) fn records(&self) -> Vec<PullRecord> {
        let folder = self.folder.join("records");
        let read = |name: String| serde_json::from_slice(&std::fs::read(folder.join(name)).ok()?).ok();
        names_in(&folder).into_iter().filter_map(read).collect()
    }

    pub(crate) fn write_record(&self, record: &PullRecord) -> Result<()> {
        let path = self.record_path(&record.name);
        let write = || {
            create_parent(&path)?;
            replace(&path, &serde_json::to_vec(record)?)
        };
        write().map_err(|error: io::Error| Error::io(path.display().to_string(), &error))
    }

    pub(crate) fn remove_record(&self, name: &str) -> Result<()> {
        remove_file(&self.record_path(name))
    }

    fn record_path(&self, name: &str) -> PathBuf {
        let mut file = escape_path(name).replace('/', "%2F");
        if file.len() > MAX_NAME_BYTES {
            file = sha256(name.as_bytes()).to_string();
        }
        self.folder.join("records").join(format!("{file}.json"))
    }

    /// Removes a file of a version, and folders that are empty then. Returns the name of its blob.
    pub(crate) fn unlink(&self, version: &str, path: &str) -> Result<Option<OsString>> {
        let link = self.snapshot(version, path)?;
        let blob = blob_of(&link);
        remove_file(&link)?;
        let mut folder = link.parent();
        // Until one is not empty.
        while let Some(empty) =
            folder.filter(|folder| **folder != self.folder && std::fs::remove_dir(folder).is_ok())
        {
            folder = empty.parent();
        }
        Ok(blob)
    }

    pub(crate) fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// Removes the blobs that no version links to and parts of our downloads, and returns their bytes. The parts of other
    /// tools stay, and so do blobs that one may be about to link, unless they were `unlinked` just now.
    pub(crate) fn remove_unused_blobs(&self, unlinked: &[OsString]) -> Result<u64> {
        let mut used = BTreeSet::new();
        for version in self.versions() {
            for path in self.paths(&version) {
                used.extend(blob_of(&self.snapshot(&version, &path)?));
            }
        }
        let mut freed = 0;
        let folder = self.folder.join("blobs");
        for name in names_in(&folder) {
            let blob = name.split('.').next().unwrap_or_default();
            let is_digest = [40, 64].contains(&blob.len()) && blob.bytes().all(|c| c.is_ascii_hexdigit());
            let is_ours = blob == "unverified" || name.contains(".siskin-");
            let is_unused = is_digest && name == blob && !used.contains(OsStr::new(blob));
            let is_fresh = self.repository_of_hugging_face().is_some()
                && !unlinked.iter().any(|other| other.as_os_str() == OsStr::new(blob))
                && is_younger(&folder.join(&name), LINK_TIME);
            if is_ours || is_unused && !is_fresh {
                let path = folder.join(&name);
                freed += path.metadata().map_or(0, |metadata| metadata.len());
                remove_file(&path)?;
            }
        }
        Ok(freed)
    }

    /// Returns the path of a blob, and creates its folder.
    pub(crate) fn blob(&self, name: &str) -> Result<PathBuf> {
        let path = self.blob_path(name);
        create_parent(&path).map_err(|error| Error::io(path.display().to_string(), &error))?;
        Ok(path)
    }

    /// Returns the path of a blob.
    pub(crate) fn blob_path(&self, name: &str) -> PathBuf {
        self.folder.join("blobs").join(name)
    }

    pub(crate) fn has_blob(&self, name: &str) -> bool {
        self.blob_path(name).exists()
    }

    /// Links a blob into the snapshot of a version.
    pub(crate) fn link(&self, digest: &FileDigest, version: &str, path: &str) -> Result<()> {
        let link = self.snapshot(version, path)?;
        let depth = path.split('/').count() + version.split('/').count();
        let target: PathBuf = std::iter::repeat_n("..", depth).collect();
        let target = target.join("blobs").join(digest.to_string());
        let make = || {
            create_parent(&link)?;
            if std::fs::read_link(&link).is_ok_and(|known| known == target) {
                return Ok(());
            }
            let new = beside(&link);
            symlink(&target, &new, &self.folder.join("blobs").join(digest.to_string()))?;
            std::fs::rename(&new, &link)
        };
        make().map_err(|error: io::Error| Error::io(link.display().to_string(), &error))
    }

    fn snapshot(&self, version: &str, path: &str) -> Result<PathBuf> {
        Ok(self.folder.join("snapshots").join(checked(version)?).join(checked(path)?))
    }
}

/// Returns the name of the blob that a file of a snapshot links to.
pub(crate) fn blob_of(link: &Path) -> Option<OsString> {
    Some(std::fs::read_link(link).ok()?.file_name()?.to_owned())
}

fn is_younger(path: &Path, age: Duration) -> bool {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed < age))
}

/// Returns the names in a folder; none if it cannot be read.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Removes a file, which may be gone already.
fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(path.display().to_string(), &error))
        }
        _ => Ok(()),
    }
}

/// Adds the paths of the files below a folder; what cannot be read is not in the cache.
fn add_paths(folder: &Path, start: &str, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        match path.is_dir() {
            true => add_paths(&path, &format!("{start}{name}/"), paths),
            false if path.is_file() => paths.push(format!("{start}{name}")),
            false => {}
        }
    }
}

fn checked(path: &str) -> Result<&str> {
    match is_relative(path) {
        true => Ok(path),
        false => Err(Error::corrupt("path", format!("`{path}` is not a path within the repository"))),
    }
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

/// Returns a name for a file that then replaces `path`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.{}.new", std::process::id()))
}

/// Writes a file, which is the old one or the new one at any time.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path);
    std::fs::write(&new, bytes)?;
    std::fs::rename(&new, path)
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path, _: &Path) -> io::Result<()> {
    // One that a killed process left.
    let _ = std::fs::remove_file(link);
    std::os::unix::fs::symlink(target, link)
}

/// Where links need a privilege, the file is linked or copied.
#[cfg(not(unix))]
fn symlink(_: &Path, link: &Path, file: &Path) -> io::Result<()> {
    let _ = std::fs::remove_file(link);
    std::fs::hard_link(file, link).or_else(|_| std::fs::copy(file, link).map(drop))
}
