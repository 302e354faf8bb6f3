//! Target formats: each writes an open model as files of another project.
//!
//! To add a format, add one file or folder with a [`ExportFormat`] and one line in [`FORMATS`]. `docs/adding-a-format.md`
//! walks through it.

mod gguf;
pub(crate) mod model;
mod onnx;
mod round_trip;
mod safetensors;
mod settings;
mod tensors;

use crate::import;
use crate::progress::{NoProgress, ProgressSink};
use model::ExportModel;
pub use safetensors::tokenizer_json;
use siskin_format::file::{AtomicFile, File, reject_link};
use siskin_format::{Error, Result};
use siskin_kernels::quant::BlockType;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// All formats, in the order in which messages list them. A path without a known extension is a folder of the first
/// format.
pub const FORMATS: &[&ExportFormat] = &[&safetensors::FORMAT, &gguf::FORMAT, &onnx::FORMAT];

/// Maximum bytes of weights stored inside an ONNX model file.
const MAX_INLINE_BYTES: u64 = 1_500_000_000;

/// A target format.
pub struct ExportFormat {
    /// The name on the command line.
    pub name: &'static str,
    /// The file extension; empty if the format is a folder.
    pub ending: &'static str,
    write: fn(&ExportModel<'_>, &Path, &ExportOptions<'_>) -> Result<ExportReport>,
}

/// The dtype of exported tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// The model's own types as far as the format supports them, f32 otherwise.
    #[default]
    Keep,
    /// f32.
    F32,
    /// f16.
    F16,
    /// bf16.
    BF16,
}

impl Dtype {
    /// All variants with their names.
    pub const NAMES: &[(Self, &'static str)] =
        &[(Self::Keep, "keep"), (Self::F32, "f32"), (Self::F16, "f16"), (Self::BF16, "bf16")];

    /// Returns the block type that it stands for, or `None` for [`Dtype::Keep`].
    fn block(self) -> Option<BlockType> {
        match self {
            Self::Keep => None,
            Self::F32 => Some(BlockType::F32),
            Self::F16 => Some(BlockType::F16),
            Self::BF16 => Some(BlockType::BF16),
        }
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::NAMES.iter().find(|(_, name)| *name == text).map(|(dtype, _)| *dtype);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(_, name)| *name).collect();
            Error::argument("dtype", format!("unknown dtype '{text}'; expected one of {}", names.join(", ")))
        })
    }
}

/// Options for exporting.
pub struct ExportOptions<'a> {
    /// The dtype of tensors.
    pub dtype: Dtype,
    /// Whether existing files are replaced.
    pub force: bool,
    /// Files that the model is read from. They are never replaced.
    pub inputs: Vec<PathBuf>,
    /// An ONNX model with more bytes of weights stores them in an external data file: protobuf messages are limited to
    /// 2 GiB.
    pub max_inline_bytes: u64,
    /// Receives the progress.
    pub progress: &'a dyn ProgressSink,
}

impl Default for ExportOptions<'_> {
    fn default() -> Self {
        Self {
            dtype: Dtype::Keep,
            force: false,
            inputs: Vec::new(),
            max_inline_bytes: MAX_INLINE_BYTES,
            progress: &NoProgress,
        }
    }
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// The written files, the one with the weights first.
    pub files: Vec<PathBuf>,
    /// Their total size in bytes.
    pub bytes: u64,
    /// Notes about parts of the model that the files lack or store in another form.
    pub notes: Vec<String>,
}

/// Returns the format called `name`. Without a name, derives the format from the path.
pub fn format_for(name: Option<&str>, to: &Path) -> Result<&'static ExportFormat> {
    let ends = |format: &&ExportFormat| {
        let ending = to.extension().and_then(|ending| ending.to_str());
        !format.ending.is_empty() && ending.is_some_and(|ending| ending.eq_ignore_ascii_case(format.ending))
    };
    let has_ending = |wanted: &str| to.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(wanted));
    match name {
        Some(name) => FORMATS.iter().copied().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
            Error::argument(
                "format",
                format!("unknown format '{name}'; expected one of {}", names.join(", ")),
            )
        }),
        None if has_ending("safetensors") => Err(Error::argument(
            to.display().to_string(),
            "safetensors exports are directories; pass a directory",
        )),
        None if has_ending("siskin") => Err(Error::argument(
            to.display().to_string(),
            "a .siskin file is not an export: use `siskin convert`",
        )),
        None => {
            let known = FORMATS.iter().copied().find(ends);
            let folder = FORMATS.iter().copied().find(|format| format.ending.is_empty());
            match extension(to) {
                Some(unknown) if known.is_none() => {
                    let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
                    let message = format!(
                        "unknown file extension `{unknown}`; set the format to one of {}",
                        names.join(", ")
                    );
                    Err(Error::argument(to.display().to_string(), message))
                }
                _ => known.or(folder).ok_or_else(|| Error::argument("to", "there are no formats")),
            }
        }
    }
}

/// Returns the extension of a file name. Names of folders end in versions and sizes too, such as `Qwen2.5-0.5B`.
fn extension(path: &Path) -> Option<&str> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.filter(|extension| {
        extension.starts_with(|first: char| first.is_ascii_alphabetic()) && !path.is_dir()
    })
}

/// Returns the files that the model at `from` is read from, for [`ExportOptions::inputs`].
pub fn inputs_of(from: &Path) -> Result<Vec<PathBuf>> {
    let mut files = match import::is_packed(from) {
        true => Vec::new(),
        false => (import::format_of(from)?.files)(from)?,
    };
    files.push(from.to_owned());
    Ok(files)
}

/// Writes `file` as `format` to `to`, a file or a folder depending on the format. If `to` is an existing folder, a
/// single-file format is written into it as `model` plus the format's extension. Files appear together when all are
/// complete. With [`ExportOptions::force`], leftover files of another model under names that exports write are removed.
pub fn export(
    file: &File,
    format: &ExportFormat,
    to: &Path,
    options: &ExportOptions<'_>,
) -> Result<ExportReport> {
    let model = ExportModel::of(file)?;
    let inside = to.join("model").with_extension(format.ending);
    let is_inside = !format.ending.is_empty() && to.is_dir();
    if is_inside {
        reject_link(&inside)?;
    }
    let mut report = (format.write)(&model, if is_inside { &inside } else { to }, options)?;
    for path in &report.files {
        let metadata =
            std::fs::metadata(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
        report.bytes += metadata.len();
    }
    Ok(report)
}

/// Moves completed files into place, replacing existing ones, and removes `leftovers`.
fn finish(files: impl IntoIterator<Item = AtomicFile>, leftovers: &[PathBuf]) -> Result<()> {
    // A folder with missing files is better than one that mixes two models.
    for path in leftovers {
        std::fs::remove_file(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
    }
    AtomicFile::commit_all(files)
}

impl ExportOptions<'_> {
    /// Creates a file in a folder under a name chosen by the format. Symbolic links are not followed.
    fn create_in_folder(&self, path: &Path) -> Result<AtomicFile> {
        reject_link(path)?;
        self.create(path)
    }

    /// Creates the file at `path`.
    fn create(&self, path: &Path) -> Result<AtomicFile> {
        if !self.force && path.symlink_metadata().is_ok() {
            let message = "exists; choose another path, or --force to replace it";
            return Err(Error::argument(path.display().to_string(), message));
        }
        AtomicFile::create_from(path, &self.inputs)
    }

    /// Returns those of `names` that exist in `folder`: they belong to another model and must be removed. Returns an
    /// error if they may not be removed.
    fn leftovers(&self, folder: &Path, names: impl IntoIterator<Item = String>) -> Result<Vec<PathBuf>> {
        let paths = names.into_iter().map(|name| folder.join(name));
        let there: Vec<_> = paths.filter(|path| path.symlink_metadata().is_ok()).collect();
        if let Some(path) = there.first().filter(|_| !self.force) {
            let message =
                "belongs to a different model; choose another path, or --force to remove the leftovers";
            return Err(Error::argument(path.display().to_string(), message));
        }
        // A symbolic link among them is removed, not followed.
        let mut files = there.iter().filter(|path| !path.is_symlink());
        files.try_for_each(|path| AtomicFile::check(path, &self.inputs))?;
        Ok(there)
    }
}
