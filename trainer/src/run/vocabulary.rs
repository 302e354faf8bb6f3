//! A tokenizer trained on the data of a run: trained once, and kept in the run's folder.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use siskin::{Error, Result};

use super::config::{DataOptions, RunConfig};
use super::texts::{paths, reading};
use crate::data::documents;
use crate::data::source::{Body, files};
use crate::files::write;
use crate::tokenizer::Words;

/// The tokenizer.
const KEPT: &str = "tokenizer.json";
/// What it was trained on.
const FROM: &str = "tokenizer.from.json";

/// Returns the trained tokenizer of a config with `model.vocabulary`, as a `tokenizer.json`. A resumed run uses the
/// one in its folder; other runs reuse it only if it was trained on the same files.
pub fn learned_tokenizer(config: &RunConfig, folder: &Path, goes_on: bool) -> Result<Vec<u8>> {
    let vocabulary = config.model.vocabulary.ok_or_else(|| {
        let message = "is missing; name a model that has one, or the `vocabulary` of one to be learned";
        Error::argument("model.tokenizer", message)
    })?;
    let from = from(config, vocabulary)?;
    let (kept, beside) = (folder.join(KEPT), folder.join(FROM));
    let same = || std::fs::read(&beside).is_ok_and(|bytes| bytes == from.to_string().as_bytes());
    if (goes_on || same())
        && let Ok(bytes) = std::fs::read(&kept)
    {
        return Ok(bytes);
    }
    let mut words = Words::default();
    for document in documents(&paths(&config.data.training)?, &reading(config)?)? {
        let document = document?;
        match document.body {
            Body::Texts(texts) => texts.iter().for_each(|text| words.add(text)),
            Body::Tokens(_) => {
                let message = "holds tokens, of which no tokenizer can be learned; name `model.tokenizer`";
                return Err(Error::argument(document.place, message));
            }
        }
    }
    let learned = words.learn(vocabulary, &["<|endoftext|>"])?.to_string();
    super::folder::prepare(folder)?;
    // Never leave a tokenizer next to the description of another one's data.
    let _ = std::fs::remove_file(&beside);
    write(&kept, learned.as_bytes())?;
    write(&beside, from.to_string().as_bytes())?;
    Ok(learned.into_bytes())
}

/// Returns all that determines a tokenizer; files by name, size and modification time.
fn from(config: &RunConfig, vocabulary: usize) -> Result<Value> {
    let described = files(&paths(&config.data.training)?)?.into_iter().map(|path| {
        let place = path.display().to_string();
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io(&place, &error))?;
        let time = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(json!([place, metadata.len(), time.map(|time| time.as_nanos().to_string())]))
    });
    let described = described.collect::<Result<Vec<_>>>()?;
    let DataOptions { task, cut, fields, .. } = &config.data;
    Ok(json!({"vocabulary": vocabulary, "task": task, "cut": cut, "fields": fields, "files": described}))
}
