//! A tokenizer trained on the data of a run: trained once, and kept in the run's folder.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use siskin_format::{Error, Result};

use super::config::{DataOptions, RunConfig};
use super::dataset::{paths, reading};
use crate::data::documents;
use crate::data::source::{Body, files};
use crate::files::write;
use crate::tokenizer::WordCounts;

/// The tokenizer.
const KEPT: &str = "tokenizer.json";
/// What it was trained on.
const FROM: &str = "tokenizer.from.json";

/// Returns the trained tokenizer of a config with `model.vocabulary`, as a `tokenizer.json`. A resumed run uses the
/// one in its folder; other runs reuse it only if it was trained on the same files.
pub fn trained_tokenizer(config: &RunConfig, folder: &Path, resumes: bool) -> Result<Vec<u8>> {
    let vocabulary = config.model.tokenizer_vocab_size.ok_or_else(|| {
        let message = "missing; set it, or `tokenizer_vocab_size` to train a tokenizer";
        Error::argument("model.tokenizer", message)
    })?;
    let from = from(config, vocabulary)?;
    let (tokenizer_path, source_path) = (folder.join(KEPT), folder.join(FROM));
    let same = || std::fs::read(&source_path).is_ok_and(|bytes| bytes == from.to_string().as_bytes());
    if (resumes || same())
        && let Ok(bytes) = std::fs::read(&tokenizer_path)
    {
        return Ok(bytes);
    }
    let mut words = WordCounts::default();
    for document in documents(&paths(&config.data.train)?, &reading(config)?)? {
        let document = document?;
        match document.body {
            Body::Texts(texts) => texts.iter().for_each(|text| words.add(text)),
            Body::Tokens(_) => {
                let message =
                    "contains packed tokens, from which no tokenizer can be trained; set `model.tokenizer`";
                return Err(Error::argument(document.place, message));
            }
        }
    }
    let trained = words.train(vocabulary, &["<|endoftext|>"])?.to_string();
    crate::run_folder::prepare(folder)?;
    // Never leave a tokenizer next to the description of another one's data.
    let _ = std::fs::remove_file(&source_path);
    write(&tokenizer_path, trained.as_bytes())?;
    write(&source_path, from.to_string().as_bytes())?;
    Ok(trained.into_bytes())
}

/// Returns all that determines a tokenizer; files by name, size and modification time.
fn from(config: &RunConfig, vocabulary: usize) -> Result<Value> {
    let described = files(&paths(&config.data.train)?)?.into_iter().map(|path| {
        let place = path.display().to_string();
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io(&place, &error))?;
        let time = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(json!([place, metadata.len(), time.map(|time| time.as_nanos().to_string())]))
    });
    let described = described.collect::<Result<Vec<_>>>()?;
    let DataOptions { task, document_separator, text_fields, .. } = &config.data;
    Ok(json!({
        "vocab_size": vocabulary, "task": task, "document_separator": document_separator,
        "text_fields": text_fields, "files": described,
    }))
}
