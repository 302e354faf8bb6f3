//! The models of `siskin serve`, with their names and versions.

use crate::lora::name_of;
use siskin::{Error, Result};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A model, its name and its version, written as `[NAME=]PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedModelArg {
    pub(crate) name: String,
    /// `None`: that of its file.
    pub(crate) version: Option<String>,
    pub(crate) path: PathBuf,
}

impl FromStr for ServedModelArg {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A path may contain the sign as well, a name no separator of folders.
        let named =
            text.split_once('=').filter(|(name, _)| !name.contains(['/', '\\']) && !Path::new(text).exists());
        let (name, path) = named.map_or((None, text), |(name, path)| (Some(name), path));
        match name {
            Some("") => Err(Error::argument("MODEL", "expected a name before the equals sign")),
            Some(name) => Ok(Self { name: name.to_owned(), ..Self::of_path(path.into())? }),
            None => Self::of_path(path.into()),
        }
    }
}

impl ServedModelArg {
    /// Returns the model of a path, which gives it its name and version.
    pub(crate) fn of_path(path: PathBuf) -> Result<Self> {
        let name = name_of(&path)?;
        let is_version = name.bytes().all(|byte| byte.is_ascii_digit());
        let folder = path.parent().filter(|folder| is_version && folder.file_name().is_some());
        Ok(Self {
            // A folder with versions of a model: models/NAME/VERSION.
            name: folder.map_or_else(|| Ok(name.clone()), name_of)?,
            version: is_version.then_some(name),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_names_and_versions() {
        for (text, name, version, path) in [
            ("a/smollm2-q4_0.gguf", "smollm2-q4_0", None, "a/smollm2-q4_0.gguf"),
            ("chat=a/b=c.gguf", "chat", None, "a/b=c.gguf"),
            ("a/b=c.gguf", "b=c", None, "a/b=c.gguf"),
            ("models/chat/12.siskin", "chat", Some("12"), "models/chat/12.siskin"),
            ("new=models/chat/13", "new", Some("13"), "models/chat/13"),
            ("7.siskin", "7", Some("7"), "7.siskin"),
        ] {
            let expected = ServedModelArg {
                name: name.to_owned(),
                version: version.map(str::to_owned),
                path: path.into(),
            };
            assert_eq!(text.parse::<ServedModelArg>().unwrap(), expected, "{text}");
        }
        assert!("=a.gguf".parse::<ServedModelArg>().is_err());
    }
}
