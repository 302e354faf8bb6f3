//! Opens a model in any format: packed files directly, other formats through the packed cache.

use crate::cache::{self, CacheFile, CachePath};
use crate::env;
use crate::import::{self, ModelSource, SourceFormat};
use crate::pack::{self, PackOptions, Recipe};
use crate::progress::{NoProgress, ProgressSink};
use serde_json::Value;
use siskin_backend::loaded_model::{LoadedModel, ModelAdapters, ModelOptions};
use siskin_format::file::File;
use siskin_format::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Where the packed file of a model is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PackedCache {
    /// In the user's cache folder: `$XDG_CACHE_HOME/siskin` or `~/.cache/siskin`. If that folder cannot be used, falls
    /// back to [`PackedCache::Off`] and reports a note.
    #[default]
    User,
    /// Next to the source: `model.gguf.siskin`, or `model.siskin` in a folder. An existing file is used only if the
    /// user owns it and no other user may write to it.
    NextToSource,
    /// In the given folder, which is created if missing.
    Folder(PathBuf),
    /// Nowhere: packed for this process alone, into an unlinked temporary file.
    Off,
}

/// Options for opening a model that may have to be packed.
pub struct OpenOptions<'a> {
    /// Where the packed file is stored.
    pub cache: PackedCache,
    /// Which weight type each matrix gets. Without a recipe, weights keep the source's values exactly.
    pub recipe: Option<Recipe>,
    /// Receives the progress of packing.
    pub progress: &'a dyn ProgressSink,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self { cache: PackedCache::User, recipe: None, progress: &NoProgress }
    }
}

/// Opens the model at `path`: a `.siskin` file, a GGUF file, a Hugging Face or CTranslate2 folder, or an ONNX model of
/// a known family. [`open_model`] opens other ONNX models too.
///
/// Other formats than `.siskin` are packed once. Later calls use the packed file as long as the source files are not
/// changed, replaced or moved. Several processes may do so at once. The opened files stay mapped: see [`File::open`]
/// for the requirements on the caller.
pub fn open_any(path: impl AsRef<Path>, options: &OpenOptions<'_>) -> Result<File> {
    let path = path.as_ref();
    open_with(path, options, |format| (format.open)(path))
}

/// Opens a model to run it, as [`open_any`] and [`LoadedModel::new`] do. An ONNX model of an unknown family is run as
/// is, by the external backend; [`LoadedModel::notes`] reports that.
pub fn open_model(
    path: impl AsRef<Path>,
    options: &OpenOptions<'_>,
    model_options: &ModelOptions,
) -> Result<LoadedModel> {
    let path = path.as_ref();
    let within = |error: Error| error.within(&path.display().to_string());
    #[cfg(feature = "tract")]
    if import::onnx::is_there(path) {
        let mut general = None;
        let file = open_with(path, options, |_| import::onnx::source_or(path, &mut general));
        return match general {
            None => LoadedModel::new(file?, ModelAdapters::None, model_options).map_err(within),
            Some(reason) => {
                options.progress.message("optimizing the graph");
                let (engine, file) = import::onnx::General::open(path, &reason)?;
                LoadedModel::external(file, std::sync::Arc::new(engine), model_options).map_err(within)
            }
        };
    }
    LoadedModel::new(open_any(path, options)?, ModelAdapters::None, model_options).map_err(within)
}

/// Removes what was packed from a model, and returns its size in bytes. Models that are open stay mapped.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be removed.
pub fn remove_packed(path: impl AsRef<Path>, options: &OpenOptions<'_>) -> Result<u64> {
    let path = path.as_ref();
    if is_packed(path) || options.cache == PackedCache::Off {
        return Ok(0);
    }
    // Other files were not packed.
    let Ok(format) = import::format_of(path) else { return Ok(0) };
    let identity = cache::identity(path, format, options.recipe)?;
    let location = location(path, options, &identity)?;
    location.sweep(&identity);
    match location.look(&identity) {
        CacheFile::Fresh(file) => {
            let failed = |error| Error::io(location.path.display().to_string(), &error);
            std::fs::remove_file(&location.path).map_err(failed)?;
            Ok(file.bytes().len() as u64)
        }
        CacheFile::Replaceable | CacheFile::Foreign => Ok(0),
    }
}

/// Opens a model. `open` opens the source if it is needed.
fn open_with(
    path: &Path,
    options: &OpenOptions<'_>,
    open: impl FnOnce(&SourceFormat) -> Result<Box<dyn ModelSource>>,
) -> Result<File> {
    if is_packed(path) {
        return match options.recipe {
            None => File::open(path),
            Some(_) => Err(Error::argument(
                "quant",
                "a .siskin file cannot be re-encoded while it is opened; open its source instead",
            )),
        };
    }
    let format = import::format_of(path)?;
    if options.cache == PackedCache::Off {
        return unnamed(path, format, open(format)?.as_ref(), options);
    }
    let identity = cache::identity(path, format, options.recipe)?;
    let location = location(path, options, &identity);
    if let Ok(location) = &location
        && let CacheFile::Fresh(file) = location.look(&identity)
    {
        return Ok(*file);
    }
    let source = open(format)?;
    let begun = location.and_then(|location| match location.create(&identity) {
        Ok(out) => Ok((location, out)),
        Err(error) => {
            let message = format!(
                "cannot write the packed model: {error}; choose another cache folder or open without a cache"
            );
            Err(Error::new(ErrorKind::Io, path.display().to_string(), message))
        }
    });
    let (location, out) = match begun {
        Ok(begun) => begun,
        Err(error) if options.cache == PackedCache::User => {
            options.progress.note(&format!("packed for this process only: {error}"));
            return unnamed(path, format, source.as_ref(), options);
        }
        Err(error) => return Err(error),
    };
    let provenance = cache::provenance(identity.clone());
    let options = PackOptions {
        recipe: options.recipe,
        progress: options.progress,
        provenance,
        ..PackOptions::default()
    };
    let out = pack::pack_as(format, path, source.as_ref(), out, &options)?;
    if cache::identity(path, format, options.recipe)? != identity {
        let message = "changed while it was packed; open it again";
        return Err(Error::new(ErrorKind::State, path.display().to_string(), message));
    }
    let file = out.commit_and_keep()?;
    location.sweep(&identity);
    File::open_descriptor(file, 0, None).map_err(|error| error.within(&location.path.display().to_string()))
}

fn is_packed(path: &Path) -> bool {
    let named =
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("siskin")) && !path.is_dir();
    named || import::is_packed(path)
}

fn location(path: &Path, options: &OpenOptions<'_>, identity: &Value) -> Result<CachePath> {
    let within = |folder: &Path| CachePath::within(folder, path, options.recipe, identity);
    match &options.cache {
        PackedCache::NextToSource => Ok(CachePath::next_to_source(path, options.recipe)),
        PackedCache::Folder(folder) => Ok(within(folder)),
        PackedCache::User | PackedCache::Off => env::user_cache()
            .map(|folder| within(&folder))
            .ok_or_else(|| Error::new(ErrorKind::Missing, "HOME", "the user has no cache folder: name one")),
    }
}

/// Packs into a temporary file that is unlinked before it is mapped.
fn unnamed(
    path: &Path,
    format: &SourceFormat,
    source: &dyn ModelSource,
    options: &OpenOptions<'_>,
) -> Result<File> {
    let options =
        PackOptions { recipe: options.recipe, progress: options.progress, ..PackOptions::default() };
    if cfg!(unix) {
        let file = pack::pack_as(format, path, source, nameless_file()?, &options)?;
        return File::open_descriptor(file, 0, None);
    }
    let out = std::io::Cursor::new(Vec::new());
    File::from_bytes(pack::pack_as(format, path, source, out, &options)?.into_inner())
}

/// Packs `source` with its values unchanged into an unlinked temporary file.
#[cfg(feature = "tract")]
pub(crate) fn nameless(source: &dyn ModelSource) -> Result<File> {
    let options = PackOptions::default();
    if cfg!(unix) {
        return File::open_descriptor(pack::pack(source, nameless_file()?, &options)?, 0, None);
    }
    File::from_bytes(pack::pack(source, std::io::Cursor::new(Vec::new()), &options)?.into_inner())
}

/// Creates an unlinked file in the system's folder for temporary files.
fn nameless_file() -> Result<std::fs::File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    /// Maximum number of names to try if names are taken.
    const MAX_ATTEMPTS: usize = 1000;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    for taken in 0.. {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("siskin-{}-{number}.part", std::process::id()));
        let io = |error: std::io::Error| Error::io(path.display().to_string(), &error);
        match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && taken < MAX_ATTEMPTS => {}
            Err(error) => return Err(io(error)),
            Ok(file) => {
                std::fs::remove_file(&path).map_err(io)?;
                return Ok(file);
            }
        }
    }
    Err(Error::new(ErrorKind::Io, "temporary file", "all names are taken"))
}
