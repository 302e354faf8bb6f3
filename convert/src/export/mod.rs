//! Target formats: each writes an open model as files of another project.
//!
//! To add a format: one file or folder with a [`Format`], one line in [`FORMATS`]. `docs/adding-a-format.md` walks
//! through it.

mod gguf;
pub(crate) mod model;
mod onnx;
mod reread;
mod safetensors;
mod settings;
mod tensors;

use crate::import;
use crate::progress::{NoProgress, Progress};
use model::Model;
pub use safetensors::tokenizer_json;
use siskin::file::{AtomicFile, File};
use siskin::{Error, Result};
use siskin_kernels::quant::BlockType;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Every format, in the order in which messages list them. What has no known ending is a folder of the first.
pub const FORMATS: &[&Format] = &[&safetensors::FORMAT, &gguf::FORMAT, &onnx::FORMAT];

/// Bytes of weights in an ONNX model's own file.
const MOST_INSIDE: u64 = 1_500_000_000;

/// A way to store models for others.
pub struct Format {
    /// The name on the command line.
    pub name: &'static str,
    /// How the names of its files end; empty where it is a folder.
    pub ending: &'static str,
    write: fn(&Model<'_>, &Path, &ExportOptions<'_>) -> Result<Report>,
}

/// The type of numbers in the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dtype {
    /// That of the model, as far as the format has it; 32-bit floats otherwise.
    #[default]
    Keep,
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// bfloat16.
    BF16,
}

impl Dtype {
    /// Every one, and its name.
    pub const NAMES: &[(Self, &'static str)] =
        &[(Self::Keep, "keep"), (Self::F32, "f32"), (Self::F16, "f16"), (Self::BF16, "bf16")];

    /// The type of blocks that it asks for; `None` for [`Dtype::Keep`].
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
            Error::argument("dtype", format!("'{text}' is none of {}", names.join(", ")))
        })
    }
}

/// How to export.
pub struct ExportOptions<'a> {
    /// The type of numbers.
    pub dtype: Dtype,
    /// Whether files that are there are replaced.
    pub force: bool,
    /// Files that the model is read from: they are never replaced.
    pub inputs: Vec<PathBuf>,
    /// An ONNX model with more bytes of weights keeps them in a file beside it: readers take no more than 2 GiB at once.
    pub most_inside: u64,
    /// Is told how far the work is.
    pub progress: &'a dyn Progress,
}

impl Default for ExportOptions<'_> {
    fn default() -> Self {
        Self {
            dtype: Dtype::Keep,
            force: false,
            inputs: Vec::new(),
            most_inside: MOST_INSIDE,
            progress: &NoProgress,
        }
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The files, the one with the weights first.
    pub files: Vec<PathBuf>,
    /// Their bytes in all.
    pub bytes: u64,
    /// What the files do not hold although the model does, or hold in another form.
    pub notes: Vec<String>,
}

/// The format called `name`, or that of a path without one.
pub fn format_for(name: Option<&str>, to: &Path) -> Result<&'static Format> {
    let ends = |format: &&Format| {
        let ending = to.extension().and_then(|ending| ending.to_str());
        !format.ending.is_empty() && ending.is_some_and(|ending| ending.eq_ignore_ascii_case(format.ending))
    };
    let has_ending = |wanted: &str| to.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(wanted));
    match name {
        Some(name) => FORMATS.iter().copied().find(|format| format.name == name).ok_or_else(|| {
            let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
            Error::argument("to", format!("'{name}' is none of {}", names.join(", ")))
        }),
        None if has_ending("safetensors") => {
            Err(Error::argument(to.display().to_string(), "safetensors are written as a folder: name one"))
        }
        None if has_ending("siskin") => {
            Err(Error::argument(to.display().to_string(), "a .siskin file is what `siskin convert` writes"))
        }
        None => {
            let known = FORMATS.iter().copied().find(ends);
            let folder = FORMATS.iter().copied().find(|format| format.ending.is_empty());
            known.or(folder).ok_or_else(|| Error::argument("to", "there are no formats"))
        }
    }
}

/// The files that the model at `from` is read from, for [`ExportOptions::inputs`].
pub fn inputs_of(from: &Path) -> Result<Vec<PathBuf>> {
    let mut files = match import::is_packed(from) {
        true => Vec::new(),
        false => (import::format_of(from)?.files)(from)?,
    };
    files.push(from.to_owned());
    Ok(files)
}

/// Writes `file` as `format` to `to`, a file or a folder as the format has it; a file goes into a folder that is there
/// as `model` with the format's ending. Files appear together, when all are complete; with [`ExportOptions::force`], what
/// is left of another model under names that exports write goes.
pub fn export(file: &File, format: &Format, to: &Path, options: &ExportOptions<'_>) -> Result<Report> {
    let model = Model::of(file)?;
    let inside = to.join("model").with_extension(format.ending);
    let is_inside = !format.ending.is_empty() && to.is_dir();
    if is_inside {
        refuse_link(&inside)?;
    }
    let mut report = (format.write)(&model, if is_inside { &inside } else { to }, options)?;
    for path in &report.files {
        let metadata =
            std::fs::metadata(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
        report.bytes += metadata.len();
    }
    Ok(report)
}

/// Refuses a link under a name that the user did not give.
pub(super) fn refuse_link(path: &Path) -> Result<()> {
    match path.is_symlink() {
        true => {
            let message = "is a symbolic link, and links are not followed for files that Siskin names itself: remove it";
            Err(Error::argument(path.display().to_string(), message))
        }
        false => Ok(()),
    }
}

/// Puts files under their names, all of which are complete, in place of what was there and of `leftovers`.
fn finish(files: impl IntoIterator<Item = AtomicFile>, leftovers: &[PathBuf]) -> Result<()> {
    // A folder from which something is missing is better than one that holds two models.
    for path in leftovers {
        std::fs::remove_file(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
    }
    AtomicFile::commit_all(files)
}

impl ExportOptions<'_> {
    /// Begins a file of a folder, whose name the format gives it: a link is not followed.
    fn create_in_folder(&self, path: &Path) -> Result<AtomicFile> {
        refuse_link(path)?;
        self.create(path)
    }

    /// Begins the file at `path`.
    fn create(&self, path: &Path) -> Result<AtomicFile> {
        if !self.force && path.symlink_metadata().is_ok() {
            let message = "is there already; give another place, or --force to replace it";
            return Err(Error::argument(path.display().to_string(), message));
        }
        AtomicFile::create_from(path, &self.inputs)
    }

    /// Those of `names` that are in `folder`: they are of another model, and must go. An error where they may not.
    fn leftovers(&self, folder: &Path, names: impl IntoIterator<Item = String>) -> Result<Vec<PathBuf>> {
        let paths = names.into_iter().map(|name| folder.join(name));
        let there: Vec<_> = paths.filter(|path| path.symlink_metadata().is_ok()).collect();
        if let Some(path) = there.first().filter(|_| !self.force) {
            let message =
                "is of another model; give another place, or --force to remove what is left of that";
            return Err(Error::argument(path.display().to_string(), message));
        }
        // A link among them is removed, not followed.
        let mut files = there.iter().filter(|path| !path.is_symlink());
        files.try_for_each(|path| AtomicFile::check(path, &self.inputs))?;
        Ok(there)
    }
}
