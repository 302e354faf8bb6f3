//! The input files of a run, which no output of the run may overwrite.

use std::path::PathBuf;

use siskin_format::Result;

use super::config::RunConfig;
use crate::data::source::files;

/// Returns the models, tokenizers and text files that a config names. A model or a tokenizer may be a folder.
pub fn inputs(config: &RunConfig) -> Result<Vec<PathBuf>> {
    let texts: Vec<PathBuf> =
        config.data.train.iter().chain(&config.data.validation).map(PathBuf::from).collect();
    let mut inputs: Vec<PathBuf> = files(&texts)?.into();
    let models = [&config.model.from, &config.model.tokenizer].into_iter().flatten();
    inputs.extend(models.map(PathBuf::from));
    inputs.extend(config.teacher.iter().map(|teacher| PathBuf::from(&teacher.from)));
    Ok(inputs)
}
