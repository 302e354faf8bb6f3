//! Opens a model in any format: packed files directly, others through a cache file.

use crate::cache::{self, Found};
use crate::import::{self, Format, Source};
use crate::knobs;
use crate::pack::{self, PackOptions, Recipe};
use crate::progress::{NoProgress, Progress};
use siskin::file::{AtomicFile, File};
use siskin::{Error, ErrorKind, Model, ModelOptions, Result};
use std::path::{Path, PathBuf};

/// Where the packed form of a model is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Beside the source, or in the user's cache folder where nobody can, or is meant to, write there.
    #[default]
    Auto,
    /// Beside the source: `model.gguf.siskin`, or `model.siskin` in a folder.
    Beside,
    /// In the given folder, which is made where it is absent.
    Folder(PathBuf),
    /// In the user's cache folder: `$XDG_CACHE_HOME/siskin` or `~/.cache/siskin`.
    User,
    /// Nowhere: packed for this process alone, into a temporary file without a name.
    Off,
}

/// How to open a model that may have to be packed.
pub struct OpenOptions<'a> {
    /// Where the packed form is kept.
    pub cache: Cache,
    /// Which types matrices get; without one they keep the source's numbers exactly.
    pub recipe: Option<Recipe>,
    /// Is told how far packing is.
    pub progress: &'a dyn Progress,
}

impl Default for OpenOptions<'_> {
    fn default() -> Self {
        Self { cache: Cache::Auto, recipe: None, progress: &NoProgress }
    }
}

/// Opens the model at `path`: a `.siskin` file, a GGUF file, a folder of Hugging Face or CTranslate2, or an ONNX model
/// of a family that is known; [`open_model`] takes other ONNX models too.
///
/// What is not a `.siskin` file is packed once; later calls find the packed file as long as the source's files keep
/// their sizes and times. Several processes may do so at once. What is opened stays mapped: see
/// [`File::open`] for what that asks of the caller.
pub fn open_any(path: impl AsRef<Path>, options: &OpenOptions<'_>) -> Result<File> {
    let path = path.as_ref();
    open_with(path, options, |format| (format.open)(path))
}

/// Opens a model to run it: as [`open_any`] and [`Model::from_file`] do, and an ONNX model that is of no known family
/// as it is. [`Model::notes`] says so then.
pub fn open_model(
    path: impl AsRef<Path>,
    options: &OpenOptions<'_>,
    model_options: &ModelOptions,
) -> Result<Model> {
    let path = path.as_ref();
    let within = |error: Error| error.within(&path.display().to_string());
    #[cfg(feature = "tract")]
    if import::onnx::is_there(path) {
        let mut general = None;
        let file = open_with(path, options, |_| import::onnx::source_or(path, &mut general));
        return match general {
            None => Model::from_file(file?, model_options).map_err(within),
            Some(reason) => {
                options.progress.message("making the graph ready");
                let (engine, file) = import::onnx::General::open(path, &reason)?;
                Model::of_engine(file, std::sync::Arc::new(engine), model_options).map_err(within)
            }
        };
    }
    Model::from_file(open_any(path, options)?, model_options).map_err(within)
}

/// Opens a model whose source, should it be needed, `open` opens.
fn open_with(
    path: &Path,
    options: &OpenOptions<'_>,
    open: impl FnOnce(&Format) -> Result<Box<dyn Source>>,
) -> Result<File> {
    if is_packed(path) {
        return match options.recipe {
            None => File::open(path),
            Some(_) => {
                Err(Error::argument("quant", "a .siskin file keeps its types; open its source instead"))
            }
        };
    }
    let format = import::format_of(path)?;
    if options.cache == Cache::Off {
        return unnamed(path, format, open(format)?.as_ref(), options);
    }
    let identity = cache::identity(path, format, options.recipe)?;
    let places = places(path, options)?;
    let mut usable = Vec::new();
    for place in &places {
        match cache::look(place, &identity) {
            Found::Fresh(file) => return Ok(*file),
            Found::Replaceable => usable.push(place),
            Found::Foreign => {}
        }
    }
    let source = open(format)?;
    let mut refusals = Vec::new();
    for place in usable {
        match create(place) {
            Ok(out) => {
                let provenance = cache::provenance(identity);
                let options = PackOptions {
                    recipe: options.recipe,
                    progress: options.progress,
                    provenance,
                    ..PackOptions::default()
                };
                pack::pack_as(format, path, source.as_ref(), out, &options)?.commit()?;
                return File::open(place);
            }
            Err(error) => refusals.push(error.to_string()),
        }
    }
    let tried: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    let message = format!(
        "no place for the packed file: tried {}{}{}; choose another cache folder or open without a cache",
        tried.join(" and "),
        if refusals.is_empty() { "" } else { " – " },
        refusals.join("; "),
    );
    Err(Error::new(ErrorKind::Io, path.display().to_string(), message))
}

fn is_packed(path: &Path) -> bool {
    let named =
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("siskin")) && !path.is_dir();
    named || import::is_packed(path)
}

fn places(path: &Path, options: &OpenOptions<'_>) -> Result<Vec<PathBuf>> {
    let user = || {
        let folder = knobs::user_cache().map(|folder| cache::within(&folder, path, options.recipe));
        folder.ok_or_else(|| {
            Error::new(ErrorKind::Missing, "HOME", "there is no user's cache folder: name one")
        })
    };
    let beside = cache::beside(path, options.recipe);
    Ok(match &options.cache {
        Cache::Auto if in_locked_folder(path) => vec![user()?],
        Cache::Auto => std::iter::once(beside).chain(user().ok()).collect(),
        Cache::Beside => vec![beside],
        Cache::Folder(folder) => vec![cache::within(folder, path, options.recipe)],
        Cache::User => vec![user()?],
        Cache::Off => Vec::new(),
    })
}

/// Whether nobody is meant to write beside the model, even who could (root can everywhere).
fn in_locked_folder(path: &Path) -> bool {
    let folder = if path.is_dir() { Some(path) } else { path.parent() };
    let folder = folder.map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    folder.and_then(|folder| folder.metadata().ok()).is_some_and(|metadata| metadata.permissions().readonly())
}

fn create(place: &Path) -> Result<AtomicFile> {
    if let Some(folder) = place.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
    }
    AtomicFile::create(place)
}

/// Packs into a temporary file that has lost its name before it is mapped.
fn unnamed(path: &Path, format: &Format, source: &dyn Source, options: &OpenOptions<'_>) -> Result<File> {
    let options =
        PackOptions { recipe: options.recipe, progress: options.progress, ..PackOptions::default() };
    if cfg!(unix) {
        let file = pack::pack_as(format, path, source, nameless_file()?, &options)?;
        return File::open_descriptor(file, 0, None);
    }
    let out = std::io::Cursor::new(Vec::new());
    File::from_bytes(pack::pack_as(format, path, source, out, &options)?.into_inner())
}

/// The packed form of `source` with its numbers as they are, in a temporary file that has lost its name.
#[cfg(feature = "tract")]
pub(crate) fn nameless(source: &dyn Source) -> Result<File> {
    let options = PackOptions::default();
    if cfg!(unix) {
        return File::open_descriptor(pack::pack(source, nameless_file()?, &options)?, 0, None);
    }
    File::from_bytes(pack::pack(source, std::io::Cursor::new(Vec::new()), &options)?.into_inner())
}

/// A file in the system's folder for temporary files, whose name is gone.
fn nameless_file() -> Result<std::fs::File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("siskin-{}-{number}.part", std::process::id()));
    let io = |error: std::io::Error| Error::io(path.display().to_string(), &error);
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(io)?;
    std::fs::remove_file(&path).map_err(io)?;
    Ok(file)
}
