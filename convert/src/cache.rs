//! Cache files: where a packed model is kept, and whether it is still the source's.

use crate::import::Format;
use crate::pack::Recipe;
use serde_json::{Map, Value, json};
use siskin::file::{File, MAJOR, MINOR};
use siskin::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The provenance entry that makes a file a cache file.
const KEY: &str = "cache";

/// Counts changes of packing after which older cache files are packed again.
const PACKING: u32 = 6;

/// What a cache file must say to be the packed form of this source: the source's files with sizes and times, the
/// recipe, and the versions of format and tool.
pub(crate) fn identity(path: &Path, format: &Format, recipe: Option<Recipe>) -> Result<Value> {
    let mut files = Vec::new();
    for file in (format.files)(path)? {
        let place = file.display().to_string();
        let metadata = std::fs::metadata(&file).map_err(|error| Error::io(place, &error))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map(|time| format!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(json!({"name": name, "bytes": metadata.len(), "modified": modified}));
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

/// What stands at a cache file's place.
pub(crate) enum Found {
    /// The packed form of the source.
    Fresh(Box<File>),
    /// Nothing, or something that a new cache file may replace.
    Replaceable,
    /// A model file that somebody put there.
    Foreign,
}

/// Looks at the cache file `path`.
pub(crate) fn look(path: &Path, identity: &Value) -> Found {
    match File::open(path) {
        Ok(file) => match file.metadata().provenance.get(KEY) {
            Some(found) if found == identity => Found::Fresh(Box::new(file)),
            Some(_) => Found::Replaceable,
            None => Found::Foreign,
        },
        Err(_) => Found::Replaceable,
    }
}

/// Beside a file `model.gguf`: `model.gguf.siskin`; in a folder: `model.siskin`.
pub(crate) fn beside(path: &Path, recipe: Option<Recipe>) -> PathBuf {
    match path.is_dir() {
        true => path.join(name("model", recipe)),
        false => path.with_file_name(name(&file_name(path), recipe)),
    }
}

/// In a folder for caches, the name tells apart sources of the same name in different places.
pub(crate) fn within(folder: &Path, path: &Path, recipe: Option<Recipe>) -> PathBuf {
    let full = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let stem = format!("{}-{:016x}", file_name(&full), fnv(full.as_os_str().as_encoded_bytes()));
    folder.join(name(&stem, recipe))
}

fn name(stem: &str, recipe: Option<Recipe>) -> String {
    match recipe {
        None => format!("{stem}.siskin"),
        Some(recipe) => format!("{stem}.{}.siskin", recipe.to_string().replace(",tables=", "-")),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The 64-bit FNV-1a hash: names need only differ, and stay the same from version to version.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
