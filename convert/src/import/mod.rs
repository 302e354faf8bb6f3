//! Source formats: each reads its own container and hands over a model as plain values.
//!
//! To add a format: one file with a [`Format`], one line in [`FORMATS`]. `docs/adding-a-format.md` walks through it.

pub mod ctranslate2;
pub(crate) mod defaults;
pub mod gguf;
mod gguf_sentence;
mod gguf_source;
mod hugging_face;
mod map;
pub(crate) mod names;
pub mod onnx;
mod packed;
pub mod peft;
pub(crate) mod read;
pub mod safetensors;
mod sentence_transformers;
pub mod tokenizer_gguf;
pub mod tokenizer_json;

pub(crate) use gguf_sentence::BIDIRECTIONAL;
pub(crate) use gguf_source::FACTORS;
pub(crate) use sentence_transformers::{ACTIVATIONS, WAYS as POOLING_KEYS};

use serde_json::{Map, Value};
use siskin::arch::{Config, Family, TensorTransform};
use siskin::file::{Bytes, MAGIC};
use siskin::{Error, Result};
use siskin_kernels::quant::BlockType;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Every format, in the order in which a path is offered to them.
pub const FORMATS: &[&Format] =
    &[&gguf_source::FORMAT, &ctranslate2::FORMAT, &onnx::FORMAT, &hugging_face::FORMAT];

/// A way to store models.
pub struct Format {
    /// The name in messages and provenance.
    pub name: &'static str,
    /// Whether the path looks like this format, by its name and first bytes.
    pub detect: fn(&Path) -> bool,
    /// The files that make up the model, whether or not they are there.
    pub files: fn(&Path) -> Result<Vec<PathBuf>>,
    /// Opens the model. Its files are mapped: nobody may write to them or shorten them while the result lives.
    pub open: fn(&Path) -> Result<Box<dyn Source>>,
}

/// A model in some format. Tensors go by the names they have in a `.siskin` file.
pub trait Source: Send + Sync {
    /// The family that runs it.
    fn family(&self) -> &'static Family;

    /// The hyper-parameters.
    fn config(&self) -> &Config;

    /// Whether the source has the tensor.
    fn has(&self, name: &str) -> bool;

    /// A tensor; an error where it is absent or of a type that cannot be read.
    fn tensor(&self, name: &str) -> Result<SourceTensor>;

    /// The tokenizer section, where the source has a tokenizer.
    fn tokenizer(&self) -> Result<Option<Vec<u8>>>;

    /// The chat template, where the source has one.
    fn template(&self) -> Option<&str>;

    /// The model's own name, where the source says it.
    fn name(&self) -> Option<&str>;

    /// The licence, where the source says it.
    fn licence(&self) -> Option<&str>;

    /// Lists of numbers beside the tensors of the graph, by name: layers behind pooling.
    fn lists(&self) -> Result<Vec<(String, Vec<f32>)>> {
        Ok(Vec::new())
    }

    /// What else is worth knowing about where the model came from.
    fn provenance(&self) -> Map<String, Value>;
}

/// A tensor as the source stores it.
#[derive(Clone, Debug)]
pub struct SourceTensor {
    /// The source's name for it.
    pub name: String,
    /// The type of its blocks.
    pub block: BlockType,
    /// Rows as stored; 1 for a list of numbers.
    pub rows: usize,
    /// Columns as stored.
    pub columns: usize,
    /// The rows' blocks, one row after the other.
    pub data: Bytes,
    /// How it becomes the tensor that the model needs.
    pub take: TensorTransform,
}

/// The format of the model at `path`.
pub fn format_of(path: &Path) -> Result<&'static Format> {
    FORMATS.iter().copied().find(|format| (format.detect)(path)).ok_or_else(|| {
        let place = path.display().to_string();
        if !path.exists() {
            return Error::io(place, &std::io::ErrorKind::NotFound.into());
        }
        if is_packed(path) {
            let message = "is a .siskin file already; say with --quant which types its matrices are to have, or name a \
                           model of another format";
            return Error::argument(place, message);
        }
        if !path.is_file() && !path.is_dir() {
            return Error::unsupported(place, "is neither a regular file nor a folder");
        }
        let known: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        Error::unsupported(place, format!("is none of: .siskin, {}", known.join(", ")))
    })
}

/// The format of what is packed into a file of its own: also a `.siskin` file, where its matrices get `other` types.
pub(crate) fn format_to_pack(path: &Path, other: bool) -> Result<&'static Format> {
    if other && is_packed(path) { Ok(&packed::FORMAT) } else { format_of(path) }
}

/// Whether the path is that of a packed file, by its first bytes.
pub(crate) fn is_packed(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    path.is_file()
        && std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == MAGIC
}

/// Opens the model at `path` in whichever format it is.
///
/// The files are mapped: nobody may write to them or shorten them while the result is alive.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    (format_of(path)?.open)(path)
}
