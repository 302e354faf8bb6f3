//! Cache files: where a packed model is kept, and whether it is still the source's.
//!
//! A cache file is named and trusted by the identity of its source: device, inode, size, and the times of the last change
//! of content and of inode. The latter cannot be set by a program, so that no other file takes a source's place unseen.

use crate::import::Format;
use crate::pack::Recipe;
use serde_json::{Map, Value, json};
use siskin::file::{AtomicFile, File, MAJOR, MINOR, is_private, open_own};
use siskin::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The provenance entry that makes a file a cache file.
const KEY: &str = "cache";

/// Counts changes of packing after which older cache files are packed again.
const PACKING: u32 = 7;

/// The most bytes of a source's name in that of its cache file.
const LONGEST_STEM: usize = 128;

/// What a cache file must say to be the packed form of this source: the identities of the source's files, the recipe,
/// and the versions of format and tool.
pub(crate) fn identity(path: &Path, format: &Format, recipe: Option<Recipe>) -> Result<Value> {
    let mut files = Vec::new();
    for file in (format.files)(path)? {
        let place = file.display().to_string();
        let metadata = std::fs::metadata(&file).map_err(|error| Error::io(place, &error))?;
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

/// The provenance of a cache file.
pub(crate) fn provenance(identity: Value) -> Map<String, Value> {
    Map::from_iter([(KEY.to_owned(), identity)])
}

/// Where a cache file is, or is to be.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// In a folder for caches, names like this one are Siskin's alone. What else begins and ends like it was made of the
    /// same path, which has since changed: the beginning and the end.
    stale: Option<(String, String)>,
}

/// What stands at a cache file's place.
pub(crate) enum Found {
    /// The packed form of the source.
    Fresh(Box<File>),
    /// Nothing, or something that a new cache file may replace.
    Replaceable,
    /// Something that Siskin did not write, or that other users may write to.
    Foreign,
}

impl Place {
    /// Beside a file `model.gguf`: `model.gguf.siskin`; in a folder: `model.siskin`.
    pub(crate) fn beside(path: &Path, recipe: Option<Recipe>) -> Self {
        let path = match path.is_dir() {
            true => path.join(name("model", recipe)),
            false => path.with_file_name(name(&file_name(path), recipe)),
        };
        Self { path, stale: None }
    }

    /// In a folder for caches: the source's name, a hash of its path and one of its identity.
    pub(crate) fn within(folder: &Path, path: &Path, recipe: Option<Recipe>, identity: &Value) -> Self {
        let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let start =
            format!("{}-{:016x}-", short(&file_name(&full)), fnv(full.as_os_str().as_encoded_bytes()));
        let end = name("", recipe);
        let path = folder.join(format!("{start}{:016x}{end}", fnv(identity.to_string().as_bytes())));
        Self { path, stale: Some((start, end)) }
    }

    /// Looks at the cache file.
    pub(crate) fn look(&self, identity: &Value) -> Found {
        let file = match open_own(&self.path) {
            Ok(None) => return Found::Replaceable,
            Ok(Some(file)) if is_private(&file) => file,
            Ok(Some(_)) | Err(_) => return Found::Foreign,
        };
        match File::open_descriptor(file, 0, None) {
            Ok(file) => match file.metadata().provenance.get(KEY) {
                Some(found) if found == identity => Found::Fresh(Box::new(file)),
                Some(_) => Found::Replaceable,
                None => Found::Foreign,
            },
            // Damaged.
            Err(_) if self.stale.is_some() => Found::Replaceable,
            Err(_) => Found::Foreign,
        }
    }

    /// Begins a new cache file.
    pub(crate) fn create(&self, identity: &Value) -> Result<AtomicFile> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_folder(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
        }
        AtomicFile::create_own(&self.path, |_| matches!(self.look(identity), Found::Replaceable))
    }

    /// Removes the cache files that were made of the same path before it changed. Those of another device are left alone:
    /// another machine may share the folder, and know the source by that.
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
                // What cannot be removed takes room, and does nothing else.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Whether the cache file was made of files on the same devices, or cannot be read.
fn is_of_device(path: &Path, identity: &Value) -> bool {
    let devices = |identity: &Value| -> Vec<Value> {
        identity["files"].as_array().into_iter().flatten().map(|file| file["device"].clone()).collect()
    };
    let Ok(Some(file)) = open_own(path) else { return false };
    match File::open_descriptor(file, 0, None) {
        Ok(file) => file.metadata().provenance.get(KEY).is_some_and(|own| devices(own) == devices(identity)),
        Err(_) => true,
    }
}

/// A folder that is new is the user's alone.
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

/// Leaves room for the rest of a file's name.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_STEM)]
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The 64-bit FNV-1a hash: names need only differ, and stay the same from version to version.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
