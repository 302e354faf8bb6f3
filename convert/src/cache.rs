//! Packed cache: where the packed file of a model is stored, and whether it is up to date with its source.
//!
//! A cache file is named and validated by the identity of its source: device, inode, size, mtime and ctime. A program
//! cannot set the ctime, so replacing the source by another file is always detected.

use crate::import::SourceFormat;
use crate::pack::Recipe;
use serde_json::{Map, Value, json};
use siskin_format::file::{AtomicFile, File, MAJOR, MINOR, is_private, open_no_follow};
use siskin_format::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The provenance key that marks a file as a cache file.
const KEY: &str = "cache";

/// Version of the packing code. Cache files of an older version are packed again.
const PACKING: u32 = 7;

/// Maximum length in bytes of the source's name within the name of its cache file.
const MAX_STEM_BYTES: usize = 128;

/// Returns the metadata that a cache file must carry to be the packed form of this source: the identities of the source
/// files, the recipe, and the versions of the format and the tool.
pub(crate) fn identity(path: &Path, format: &SourceFormat, recipe: Option<Recipe>) -> Result<Value> {
    let mut files = Vec::new();
    for file in (format.files)(path)? {
        let location = file.display().to_string();
        let metadata = std::fs::metadata(&file).map_err(|error| Error::io(location, &error))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map(|time| format!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut facts = json!({"name": name, "bytes": metadata.len(), "modified": modified});
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            facts["device"] = metadata.dev().into();
            facts["inode"] = metadata.ino().into();
            facts["changed"] = format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec()).into();
        }
        files.push(facts);
    }
    Ok(json!({
        "files": files,
        "recipe": recipe.map(|recipe| recipe.to_string()),
        "format": format!("{MAJOR}.{MINOR}"),
        "packing": format!("{} {PACKING}", env!("CARGO_PKG_VERSION")),
    }))
}

/// Returns the provenance of a cache file.
pub(crate) fn provenance(identity: Value) -> Map<String, Value> {
    Map::from_iter([(KEY.to_owned(), identity)])
}

/// The path of a cache file, existing or not.
pub(crate) struct CachePath {
    pub(crate) path: PathBuf,
    /// In a cache folder, names of this form belong to Siskin alone. Other files with the same prefix and suffix were
    /// packed from the same path before it changed. Holds the prefix and the suffix.
    stale: Option<(String, String)>,
}

/// What exists at the path of a cache file.
pub(crate) enum CacheFile {
    /// The up-to-date packed form of the source.
    Fresh(Box<File>),
    /// Nothing, or a file that a new cache file may replace.
    Replaceable,
    /// A file that Siskin did not write, or that other users may write to.
    Foreign,
}

impl CachePath {
    /// Returns the path next to the source: `model.gguf.siskin` for a file `model.gguf`, `model.siskin` in a folder.
    pub(crate) fn next_to_source(path: &Path, recipe: Option<Recipe>) -> Self {
        let path = match path.is_dir() {
            true => path.join(name("model", recipe)),
            false => path.with_file_name(name(&file_name(path), recipe)),
        };
        Self { path, stale: None }
    }

    /// Returns the path in a cache folder: the source's name, a hash of its path and a hash of its identity.
    pub(crate) fn within(folder: &Path, path: &Path, recipe: Option<Recipe>, identity: &Value) -> Self {
        let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let start =
            format!("{}-{:016x}-", short(&file_name(&full)), fnv(full.as_os_str().as_encoded_bytes()));
        let end = name("", recipe);
        let path = folder.join(format!("{start}{:016x}{end}", fnv(identity.to_string().as_bytes())));
        Self { path, stale: Some((start, end)) }
    }

    /// Checks the cache file.
    pub(crate) fn look(&self, identity: &Value) -> CacheFile {
        let file = match open_no_follow(&self.path) {
            Ok(None) => return CacheFile::Replaceable,
            Ok(Some(file)) if is_private(&file) => file,
            Ok(Some(_)) | Err(_) => return CacheFile::Foreign,
        };
        match File::open_descriptor(file, 0, None) {
            Ok(file) => match file.metadata().provenance.get(KEY) {
                Some(found) if found == identity => CacheFile::Fresh(Box::new(file)),
                Some(_) => CacheFile::Replaceable,
                None => CacheFile::Foreign,
            },
            // A corrupt cache file.
            Err(_) if self.stale.is_some() => CacheFile::Replaceable,
            Err(_) => CacheFile::Foreign,
        }
    }

    /// Creates a new cache file. It replaces an up-to-date one too: another process may have written it since the caller
    /// looked.
    pub(crate) fn create(&self, identity: &Value) -> Result<AtomicFile> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_folder(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
        }
        AtomicFile::create_own(&self.path, |_| !matches!(self.look(identity), CacheFile::Foreign))
    }

    /// Removes cache files that were packed from the same path before it changed. Cache files of another device are
    /// kept: another machine may share the folder and see the source as that device.
    pub(crate) fn sweep(&self, identity: &Value) {
        let (Some((start, end)), Some(folder)) = (&self.stale, self.path.parent()) else { return };
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_stale = name.to_str().is_some_and(|name| {
                let hash = name.strip_prefix(start.as_str()).and_then(|rest| rest.strip_suffix(end.as_str()));
                hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
            });
            if is_stale
                && Some(name.as_os_str()) != self.path.file_name()
                && is_of_device(&entry.path(), identity)
            {
                // A stale file that cannot be removed only takes disk space.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns true if the cache file was packed from files on the same devices, or cannot be read.
fn is_of_device(path: &Path, identity: &Value) -> bool {
    let devices = |identity: &Value| -> Vec<Value> {
        identity["files"].as_array().into_iter().flatten().map(|file| file["device"].clone()).collect()
    };
    let Ok(Some(file)) = open_no_follow(path) else { return false };
    match File::open_descriptor(file, 0, None) {
        Ok(file) => file.metadata().provenance.get(KEY).is_some_and(|own| devices(own) == devices(identity)),
        Err(_) => true,
    }
}

/// Creates the cache folder. A new folder is accessible to the user only.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn name(stem: &str, recipe: Option<Recipe>) -> String {
    match recipe {
        None => format!("{stem}.siskin"),
        Some(recipe) => format!("{stem}.{}.siskin", recipe.to_string().replace(",tables=", "-")),
    }
}

/// Truncates `name` so that the rest of the file name fits.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_STEM_BYTES)]
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Computes the 64-bit FNV-1a hash. Hashes need only be distinct, and stable across versions.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::{OpenOptions, PackedCache, open_any};

    #[test]
    fn a_cache_file_that_another_process_wrote_first_is_replaced() {
        let folder = std::env::temp_dir().join(format!("siskin-convert-cache-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("model.gguf");
        let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gguf/tiny.gguf");
        std::fs::copy(tiny, &path).unwrap();
        let identity = identity(&path, crate::import::format_of(&path).unwrap(), None).unwrap();
        let cache = CachePath::next_to_source(&path, None);
        assert!(matches!(cache.look(&identity), CacheFile::Replaceable));
        let options = OpenOptions { cache: PackedCache::NextToSource, ..OpenOptions::default() };
        open_any(&path, &options).unwrap();
        assert!(matches!(cache.look(&identity), CacheFile::Fresh(_)));
        cache.create(&identity).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
