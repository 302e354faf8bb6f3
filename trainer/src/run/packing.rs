//! Writes the data of a run as files of packed tokens.

use std::path::{Path, PathBuf};

use siskin_format::file::{Bytes, SectionKind, reject_link};
use siskin_format::{Error, ErrorKind, Result};
use siskin_tokenizer::Tokenizer;

use super::config::RunConfig;
use super::dataset::{Sources, paths};
use super::setup::OpenedBase;
use crate::data::{Divider, PackedWriter, Split, packed};

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedFile {
    /// Its path.
    pub path: PathBuf,
    /// The number of documents in it.
    pub documents: usize,
    /// The number of tokens.
    pub tokens: u64,
}

/// Writes the training data of a config to `output`, and its validation data, if any, to the same name with
/// `.validation.tokens`. Returns both files.
///
/// Text is streamed and not kept in memory. Each file appears under its name when it is complete. A run over both
/// files, without `data.validation_split`, has the same examples as a run over the text.
pub fn pack(
    config: &RunConfig,
    base: &OpenedBase,
    output: &Path,
) -> Result<(PackedFile, Option<PackedFile>)> {
    let tokenizer = tokenizer(base)?;
    let identity = packed::identity(&tokenizer)?;
    let sources = Sources { config, tokenizer: &tokenizer };
    let data = &config.data;
    let kept = output.with_extension("validation.tokens");
    reject_link(&kept)?;
    let inputs = super::inputs(config)?;
    let reading = sources.reading()?;
    let create = |path: &Path| {
        PackedWriter::create_from(path, &inputs, tokenizer.vocabulary_size(), reading.fields.len(), identity)
    };
    let mut training = create(output)?;
    let has_validation = data.validation_split > 0.0 || !data.validation.is_empty();
    let mut validation = has_validation.then(|| create(&kept)).transpose()?;
    let trained = paths(&data.train)?;
    match &mut validation {
        Some(validation) => {
            let split = Split { validation_split: data.validation_split, seed: config.seed };
            let mut divider = Divider { split, training: &mut training, validation };
            sources.tokenize(&trained, &reading, &mut divider)?;
        }
        None => sources.tokenize(&trained, &reading, &mut training)?,
    }
    if let (Some(validation), false) = (&mut validation, data.validation.is_empty()) {
        sources.tokenize(&paths(&data.validation)?, &reading, validation)?;
    }
    if training.documents() == 0 {
        return Err(Error::argument("data.train", "contains no documents; add texts that are not empty"));
    }
    let validation = validation.map(|validation| finish(validation, &kept)).transpose()?;
    Ok((finish(training, output)?, validation))
}

fn finish(writer: PackedWriter, path: &Path) -> Result<PackedFile> {
    let packed = PackedFile { path: path.to_owned(), documents: writer.documents(), tokens: writer.tokens() };
    writer.finish()?;
    Ok(packed)
}

/// Returns the tokenizer of a run.
fn tokenizer(base: &OpenedBase) -> Result<Tokenizer> {
    let section = match base {
        OpenedBase::File(file) => file.section(SectionKind::Tokenizer),
        OpenedBase::New { tokenizer, .. } => Some(Bytes::new(tokenizer.clone())),
    };
    Tokenizer::open(
        section.ok_or_else(|| {
            Error::new(ErrorKind::Missing, "model", "no tokenizer; use a model that has one")
        })?,
    )
}
