//! The config of a run and its other input files, which no output of the run may overwrite.

use std::path::{Path, PathBuf};

use siskin_format::{Error, Result};

use super::config::RunConfig;
use crate::data::source::files;

impl RunConfig {
    /// Reads a TOML file, and returns the config with the text. Paths in it are relative to the file.
    pub fn open(path: &Path) -> Result<(Self, String)> {
        let location = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Error::io(&location, &error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let message = format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to());
            Error::argument(&location, message)
        })?;
        let mut config = Self::parse(&text).map_err(|error| error.within(&location))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let resolve = |name: &mut String| *name = folder.join(&*name).display().to_string();
        config.model.from.iter_mut().chain(&mut config.model.tokenizer).for_each(resolve);
        config.teacher.iter_mut().map(|teacher| &mut teacher.from).for_each(resolve);
        config.data.train.iter_mut().chain(&mut config.data.validation).for_each(resolve);
        Ok((config, text))
    }
}

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
