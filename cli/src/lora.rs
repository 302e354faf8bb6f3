//! `--lora`: adapters that requests choose by their names.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use siskin::{Error, Result};
use siskin_convert::AdapterSource;

/// An adapter and its name, written as `[NAME=]PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoraArg {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl LoraArg {
    pub(crate) fn source(&self, any_base: bool) -> AdapterSource<'_> {
        AdapterSource { path: &self.path, any_base }
    }
}

impl FromStr for LoraArg {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A path may contain the sign as well, a name no separator of folders.
        match text.split_once('=').filter(|(name, _)| !name.contains(['/', '\\'])) {
            Some(("", _)) => Err(Error::argument("--lora", "expected a name before the equals sign")),
            Some((name, path)) => Ok(Self { name: name.to_owned(), path: path.into() }),
            None => Ok(Self { name: name_of(Path::new(text))?, path: text.into() }),
        }
    }
}

/// Returns the name under which requests select a model or an adapter: that of its file or folder.
pub(crate) fn name_of(path: &Path) -> Result<String> {
    // `.` and `..` have no name of their own.
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let named = if path.file_name().is_some() { path } else { &absolute };
    let name = if named.is_dir() { named.file_name() } else { named.file_stem() };
    let name = name.and_then(|name| name.to_str()).filter(|name| !name.is_empty());
    let message = "its file name is not UTF-8, so that no request can select it; rename it";
    name.map(str::to_owned).ok_or_else(|| Error::argument(path.display().to_string(), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_have_the_given_name_or_that_of_their_file() {
        let parsed = |text: &str| text.parse::<LoraArg>().unwrap();
        let arg = |name: &str, path: &str| LoraArg { name: name.to_owned(), path: path.into() };
        assert_eq!(parsed("french=a/fr.siskin"), arg("french", "a/fr.siskin"));
        assert_eq!(parsed("a/fr.siskin"), arg("fr", "a/fr.siskin"));
        assert_eq!(parsed("a/b=c.siskin"), arg("b=c", "a/b=c.siskin"));
        assert!("=a".parse::<LoraArg>().is_err());
    }

    #[test]
    fn models_have_the_names_of_their_files() {
        assert_eq!(name_of(Path::new("a/smollm2-q4_0.gguf")).unwrap(), "smollm2-q4_0");
        assert_eq!(name_of(Path::new("shakespeare")).unwrap(), "shakespeare");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(name_of(&folder.join("src/..")).unwrap(), name_of(folder).unwrap());
    }
}
