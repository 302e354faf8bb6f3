//! Opens the tokenizer of a model, or a stand-alone vocabulary.

use crate::import::gguf::Gguf;
use crate::import::onnx::OnnxFolder;
use crate::import::read::read;
use crate::import::{tokenizer_gguf, tokenizer_json};
use siskin_format::file::{Bytes, File};
use siskin_format::{Error, ErrorKind, Result};
use siskin_tokenizer::{Tokenizer, Vocabulary};
use std::path::Path;

/// Opens the tokenizer at `path` without packing anything: of a `.siskin` file, of a GGUF file (vocabulary-only files
/// too), of a Hugging Face or CTranslate2 folder, of an ONNX model (the one next to it), or a `tokenizer.json`.
pub fn open_tokenizer(path: impl AsRef<Path>) -> Result<Tokenizer> {
    let path = path.as_ref();
    let open = |bytes| Tokenizer::open(bytes);
    section(path).and_then(open).map_err(|error| error.within(&path.display().to_string()))
}

/// Returns the same tokenizer as the section of a `.siskin` file.
pub fn tokenizer_section(path: impl AsRef<Path>) -> Result<Bytes> {
    let path = path.as_ref();
    section(path).map_err(|error| error.within(&path.display().to_string()))
}

/// Converts a `tokenizer.json` to the section of a `.siskin` file.
pub fn tokenizer_of_json(json: &[u8]) -> Result<Vec<u8>> {
    tokenizer_json::vocabulary(json, None)?.write()
}

fn section(path: &Path) -> Result<Bytes> {
    let has_extension =
        |wanted: &str| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted));
    let described = OnnxFolder::find(path).map(|model| model.home);
    if let Some(folder) = described.as_deref().or_else(|| path.is_dir().then_some(path)) {
        let read = |name: &str| read(&folder.join(name), name);
        let tokenizer = read("tokenizer.json")?
            .ok_or_else(|| Error::new(ErrorKind::Missing, "tokenizer.json", "missing from the folder"))?;
        let config = read("tokenizer_config.json")?;
        return written(&tokenizer_json::vocabulary(&tokenizer, config.as_deref())?);
    }
    if has_extension("json") {
        let tokenizer = read(path, "")?.ok_or_else(|| Error::io("", &std::io::ErrorKind::NotFound.into()))?;
        return written(&tokenizer_json::vocabulary(&tokenizer, None)?);
    }
    if has_extension("siskin") {
        let bytes = File::open(path)?.tokenizer();
        return bytes.ok_or_else(|| Error::new(ErrorKind::Missing, "tokenizer", "missing from the file"));
    }
    written(&tokenizer_gguf::vocabulary(&Gguf::open(path)?)?)
}

fn written(vocabulary: &Vocabulary) -> Result<Bytes> {
    Ok(Bytes::new(vocabulary.write()?))
}
