//! Source formats: each reads its own container and provides a model as a [`ModelSource`].
//!
//! To add a format, add one file with a [`SourceFormat`] and one line in [`FORMATS`]. `docs/adding-a-format.md` walks through
//! it.

pub mod ctranslate2;
pub(crate) mod defaults;
pub mod gguf;
mod gguf_sentence;
mod gguf_source;
mod gguf_tensor;
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
pub use gguf_source::needs_longer_head;
pub(crate) use sentence_transformers::{ACTIVATIONS, WAYS as POOLING_KEYS};

use serde_json::{Map, Value};
use siskin_format::file::{Bytes, MAGIC};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::{ConfigReader, Family, TensorTransform};
use siskin_kernels::quant::BlockType;
use std::io::Read;
use std::path::{Path, PathBuf};

/// All formats, in the order in which they are tried.
pub const FORMATS: &[&SourceFormat] =
    &[&gguf_source::FORMAT, &ctranslate2::FORMAT, &onnx::FORMAT, &hugging_face::FORMAT];

/// A source format.
pub struct SourceFormat {
    /// The name in messages and provenance.
    pub name: &'static str,
    /// Returns true if the path looks like this format, judging by its name and first bytes.
    pub detect: fn(&Path) -> bool,
    /// Returns the files that make up the model, existing or not.
    pub files: fn(&Path) -> Result<Vec<PathBuf>>,
    /// Opens the model. Its files are mapped: they must not be written to or truncated while the result lives.
    pub open: fn(&Path) -> Result<Box<dyn ModelSource>>,
}

/// A model in some format. Tensors have their names in `.siskin` files.
pub trait ModelSource: Send + Sync {
    /// Returns the family of the model.
    fn family(&self) -> &'static Family;

    /// Returns the hyperparameters.
    fn config(&self) -> &ConfigReader;

    /// Returns true if the source has the tensor.
    fn has(&self, name: &str) -> bool;

    /// Returns a tensor, or an error if it is missing or its type is unsupported.
    fn tensor(&self, name: &str) -> Result<SourceTensor>;

    /// Returns the tokenizer section, if the source has a tokenizer.
    fn tokenizer(&self) -> Result<Option<Vec<u8>>>;

    /// Returns the chat template, if the source has one.
    fn template(&self) -> Option<&str>;

    /// Returns the model's own name, if the source states it.
    fn name(&self) -> Option<&str>;

    /// Returns the license, if the source states it.
    fn license(&self) -> Option<&str>;

    /// Returns vectors in addition to the tensors of the graph, by name: dense layers after pooling.
    fn lists(&self) -> Result<Vec<(String, Vec<f32>)>> {
        Ok(Vec::new())
    }

    /// Returns additional metadata about the model's origin.
    fn provenance(&self) -> Map<String, Value>;
}

/// A tensor as the source stores it.
#[derive(Clone, Debug)]
pub struct SourceTensor {
    /// Its name in the source.
    pub name: String,
    /// Its block type.
    pub block: BlockType,
    /// Number of stored rows; 1 for a vector.
    pub rows: usize,
    /// Number of stored columns.
    pub columns: usize,
    /// The blocks in row order.
    pub data: Bytes,
    /// The transform to the tensor of the model.
    pub take: TensorTransform,
}

/// Returns the format of the model at `path`.
pub fn format_of(path: &Path) -> Result<&'static SourceFormat> {
    FORMATS.iter().copied().find(|format| (format.detect)(path)).ok_or_else(|| {
        let location = path.display().to_string();
        if !path.exists() {
            return Error::new(ErrorKind::Io, location, "no such file or directory");
        }
        if is_packed(path) {
            let message = "already a .siskin file; pass --quant to requantize it";
            return Error::argument(location, message);
        }
        if !path.is_file() && !path.is_dir() {
            return Error::unsupported(location, "neither a regular file nor a folder");
        }
        let known: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        Error::unsupported(
            location,
            format!("unrecognized model format; supported: .siskin, {}", known.join(", ")),
        )
    })
}

/// Returns the format of a model to be packed into a separate file. A `.siskin` file is accepted if its matrices get
/// `other` types.
pub(crate) fn format_to_pack(path: &Path, other: bool) -> Result<&'static SourceFormat> {
    if other && is_packed(path) { Ok(&packed::FORMAT) } else { format_of(path) }
}

/// Returns true if the path is a packed file, judging by its first bytes.
pub(crate) fn is_packed(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    path.is_file()
        && std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == MAGIC
}

/// Opens the model at `path` in any format.
///
/// The files are mapped: they must not be written to or truncated while the result is alive.
pub fn open(path: &Path) -> Result<Box<dyn ModelSource>> {
    (format_of(path)?.open)(path)
}
