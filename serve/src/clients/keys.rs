//! API keys: a file with their hashes, their owners and what these may do.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use siskin::serving::RequestClass;
use siskin::{Error, ErrorKind, Result};

use super::rate_limit::Rates;
use crate::files::read_text;

/// The maximum size of a file of keys.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// What keys begin with, so that scanners for leaked secrets recognize them.
const PREFIX: &str = "sk-siskin-";

/// The API keys of a server.
pub struct ApiKeys {
    keys: Vec<Arc<ApiKey>>,
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| &key.name)).finish()
    }
}

/// A key and what its owner may do.
pub(super) struct ApiKey {
    pub(super) name: String,
    hash: blake3::Hash,
    pub(super) class: RequestClass,
    /// The models that it may use; empty: all.
    models: Vec<String>,
    /// Whether it may load and unload models, and drain the server.
    pub(super) is_admin: bool,
    pub(super) rates: Rates,
}

/// A key that was just made.
pub struct NewApiKey {
    /// The secret, which is stored nowhere.
    pub key: String,
    /// The lines for the file of keys.
    pub entry: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    #[serde(default)]
    keys: Vec<KeyEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    name: String,
    blake3: String,
    #[serde(default)]
    priority: Priority,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    admin: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Priority {
    #[default]
    Interactive,
    Normal,
    Batch,
}

impl ApiKeys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if it cannot be read; [`ErrorKind::Corrupt`] if it is too long; [`ErrorKind::Argument`] if it is not
    /// valid, or has no keys.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let place = path.display().to_string();
        let text = read_text(path, MAX_FILE_BYTES)?;
        Self::parse(&text).map_err(|error| error.within(&place))
    }

    /// Parses the text of a file of keys.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is not valid, or has no keys.
    pub fn parse(text: &str) -> Result<Self> {
        let file: KeyFile = toml::from_str(text).map_err(|error| Error::argument("", error.message()))?;
        let mut keys: Vec<Arc<ApiKey>> = Vec::with_capacity(file.keys.len());
        for (index, entry) in file.keys.into_iter().enumerate() {
            let key = entry.key().map_err(|error| error.within(&format!("keys[{index}]")))?;
            if keys.iter().any(|known| known.name == key.name || known.hash == key.hash) {
                let message = format!("`{}` has the name or the hash of another key", key.name);
                return Err(Error::argument(format!("keys[{index}]"), message));
            }
            keys.push(Arc::new(key));
        }
        if keys.is_empty() {
            return Err(Error::argument("keys", "the file has no keys; make one with `siskin api-key NAME`"));
        }
        Ok(Self { keys })
    }

    /// Returns whether one of the keys may load and unload models.
    pub fn has_admin(&self) -> bool {
        self.keys.iter().any(|key| key.is_admin)
    }

    /// Makes a key, which may load and unload models and drain the server if `is_admin`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system provides no random numbers.
    pub fn generate(name: &str, is_admin: bool) -> Result<NewApiKey> {
        let mut secret = [0; 24];
        getrandom::fill(&mut secret)
            .map_err(|error| Error::new(ErrorKind::Io, "random numbers", error.to_string()))?;
        let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = format!("{PREFIX}{digits}");
        let name = serde_json::Value::from(name);
        let hash = blake3::hash(key.as_bytes()).to_hex();
        let admin = if is_admin { "admin = true\n" } else { "" };
        let entry = format!("[[keys]]\nname = {name}\nblake3 = \"{hash}\"\n{admin}");
        Ok(NewApiKey { key, entry })
    }

    /// Returns the entry of a key. The time that it takes does not depend on which hashes are nearly the right one.
    pub(super) fn find(&self, key: &str) -> Option<Arc<ApiKey>> {
        let hash = blake3::hash(key.as_bytes());
        // Compares all: hashes are compared in constant time.
        let found =
            self.keys.iter().fold(None, |found, known| if known.hash == hash { Some(known) } else { found });
        found.cloned()
    }
}

impl KeyEntry {
    fn key(self) -> Result<ApiKey> {
        let Self { name, blake3, priority, requests_per_minute, tokens_per_minute, models, admin } = self;
        if name.is_empty() {
            return Err(Error::argument("name", "must not be empty"));
        }
        let hash = blake3::Hash::from_hex(&blake3)
            .map_err(|_| Error::argument("blake3", "expected 64 hexadecimal digits"))?;
        for (field, rate) in
            [("requests_per_minute", requests_per_minute), ("tokens_per_minute", tokens_per_minute)]
        {
            if rate == Some(0) {
                return Err(Error::argument(field, "must be at least 1"));
            }
        }
        let class = match priority {
            Priority::Interactive => RequestClass::Interactive,
            Priority::Normal => RequestClass::Normal,
            Priority::Batch => RequestClass::Batch,
        };
        let rates = Rates::new(requests_per_minute, tokens_per_minute);
        Ok(ApiKey { name, hash, class, models, is_admin: admin, rates })
    }
}

impl ApiKey {
    pub(super) fn may_use(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|name| name == model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_keys_are_found() {
        let [one, two] = [("one", true), ("tw\"o", false)]
            .map(|(name, is_admin)| ApiKeys::generate(name, is_admin).unwrap());
        let text = format!("{}priority = \"batch\"\nmodels = [\"a\"]\n{}", one.entry, two.entry);
        let keys = ApiKeys::parse(&text).unwrap();
        let found = keys.find(&one.key).unwrap();
        assert_eq!((found.name.as_str(), found.class), ("one", RequestClass::Batch));
        assert!(found.may_use("a") && !found.may_use("b"));
        let other = keys.find(&two.key).unwrap();
        assert_eq!((other.name.as_str(), found.is_admin, other.is_admin), ("tw\"o", true, false));
        assert!(keys.find("").is_none());
        assert!(keys.find(&one.key[..one.key.len() - 1]).is_none());
        assert!(!text.contains(&one.key), "keys are not stored");
    }

    #[test]
    fn invalid_files_are_errors() {
        let hash = "0".repeat(64);
        for (text, place) in [
            (String::new(), "no keys"),
            ("[[keys]]\nname = \"a\"".to_owned(), "blake3"),
            ("[[keys]]\nname = \"a\"\nblake3 = \"12\"".to_owned(), "hexadecimal"),
            (format!("[[keys]]\nname = \"\"\nblake3 = \"{hash}\""), "must not be empty"),
            (format!("[[keys]]\nname = \"a\"\nblake3 = \"{hash}\"\ntokens_per_minute = 0"), "at least 1"),
            (format!("[[keys]]\nname = \"a\"\nblake3 = \"{hash}\"\npriority = \"high\""), "interactive"),
            (format!("[[keys]]\nname = \"a\"\nblake3 = \"{hash}\"\nbogus = 1"), "bogus"),
            (
                format!(
                    "[[keys]]\nname = \"a\"\nblake3 = \"{hash}\"\n[[keys]]\nname = \"a\"\nblake3 = \"{hash}\""
                ),
                "another key",
            ),
        ] {
            let error = ApiKeys::parse(&text).err().unwrap().to_string();
            assert!(error.contains(place), "{text}: {error}");
        }
    }
}
