//! Aliases: further names of models, from a file that may be replaced while the server runs.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use siskin::{Error, ErrorKind, Result};

use crate::files::read_text;
use crate::prometheus::{label, write_head, write_line};
use crate::sync::lock;

/// The maximum size of a file of aliases in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The names of models by their aliases.
type AliasMap = BTreeMap<String, String>;

/// The aliases of a server.
pub(crate) struct Aliases {
    /// `None`: there are none.
    path: Option<PathBuf>,
    /// Requests take the map when they begin, and keep their model when it is replaced.
    current: RwLock<Arc<AliasMap>>,
    /// The file that was read last, whether or not its aliases are used.
    stamp: Mutex<Option<FileStamp>>,
    reloads: AtomicU64,
    failures: AtomicU64,
}

/// The names that aliases may stand for.
pub(crate) struct AliasTargets {
    /// Those of models that are loaded, which no alias may have.
    pub(crate) loaded: Vec<String>,
    /// Those of models that can be loaded later.
    pub(crate) others: Vec<String>,
}

/// What distinguishes a file from the one that it replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// 0 on systems without.
    inode: u64,
}

impl Aliases {
    /// Reads the aliases of `path`.
    pub(crate) fn read(path: Option<PathBuf>, targets: &AliasTargets) -> Result<Self> {
        let mut map = AliasMap::new();
        let mut stamp = None;
        if let Some(path) = &path {
            stamp = FileStamp::of(path);
            map = read_map(path, targets)?;
        }
        Ok(Self {
            path,
            current: RwLock::new(Arc::new(map)),
            stamp: Mutex::new(stamp),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// Returns whether there is a file that may be replaced.
    pub(crate) fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Reads the file if it was replaced or changed. Keeps the aliases if that fails.
    ///
    /// # Errors
    /// Why it failed: once for each new file.
    pub(crate) fn reload_if_changed(&self, targets: &dyn Fn() -> Result<AliasTargets>) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut stamp = lock(&self.stamp);
        // Taken before the file is read: if that changes meanwhile, it is read again.
        let now = FileStamp::of(path);
        if *stamp == now {
            return Ok(());
        }
        *stamp = now;
        let map = targets().and_then(|targets| read_map(path, &targets));
        let map = map.inspect_err(|_| _ = self.failures.fetch_add(1, Ordering::Relaxed))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the aliases and the names of their models, as they are now.
    pub(crate) fn current(&self) -> Arc<AliasMap> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends the metrics to a page.
    pub(crate) fn write_metrics(&self, page: &mut String, is_visible: impl Fn(&str) -> bool) {
        if !self.has_file() {
            return;
        }
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        write_head(page, "siskin_model_alias", "gauge", "The model of an alias.");
        for (alias, model) in self.current().iter().filter(|(_, model)| is_visible(model)) {
            let (alias, model) = (label(alias), label(model));
            write_line(page, format_args!("siskin_model_alias{{alias={alias},model={model}}} 1"));
        }
        for (name, help, value) in [
            ("reloads", "How often a new file of aliases was read.", counter(&self.reloads)),
            ("reload_failures", "How often a new file of aliases was not valid.", counter(&self.failures)),
        ] {
            let name = format!("siskin_alias_{name}_total");
            write_head(page, &name, "counter", help);
            write_line(page, format_args!("{name} {value}"));
        }
    }
}

impl FileStamp {
    /// `None` if the file is missing.
    fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len(), inode: inode(&metadata) })
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

fn read_map(path: &Path, targets: &AliasTargets) -> Result<AliasMap> {
    let place = path.display().to_string();
    let text = read_text(path, MAX_FILE_BYTES)?;
    parse(&text, targets).map_err(|message| Error::new(ErrorKind::Corrupt, place, message))
}

/// Parses JSON, or else TOML: an object with the names of models by their aliases.
fn parse(text: &str, targets: &AliasTargets) -> std::result::Result<AliasMap, String> {
    let map: AliasMap = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => toml::from_str(text).map_err(|error| error.to_string().trim_end().replace('\n', " "))?,
    };
    for (alias, model) in &map {
        if alias.is_empty() {
            return Err("an alias is empty".to_owned());
        }
        if targets.loaded.contains(alias) {
            return Err(format!("`{alias}` is the name of a model"));
        }
        if !targets.loaded.contains(model) && !targets.others.contains(model) {
            let known = targets.loaded.join(", ");
            return Err(format!("alias `{alias}`: no model `{model}` is served; expected one of: {known}"));
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> AliasTargets {
        AliasTargets { loaded: ["a-v1", "a-v2"].map(str::to_owned).into(), others: vec!["later".to_owned()] }
    }

    #[test]
    fn files_are_json_or_toml() {
        let expected =
            AliasMap::from([("a".to_owned(), "a-v1".to_owned()), ("b".to_owned(), "a-v2".to_owned())]);
        for text in [
            "{\"a\": \"a-v1\", \"b\": \"a-v2\"}",
            "\n {\"b\": \"a-v2\", \"a\": \"a-v1\"}",
            "a = 'a-v1'\nb = \"a-v2\"",
        ] {
            assert_eq!(parse(text, &targets()).unwrap(), expected, "{text}");
        }
        assert!(parse("", &targets()).unwrap().is_empty());
        assert_eq!(parse("a = 'later'", &targets()).unwrap()["a"], "later");
        for (text, expected) in [
            ("{\"a\": \"other\"}", "alias `a`: no model `other` is served; expected one of: a-v1, a-v2"),
            ("{\"a-v1\": \"a-v2\"}", "`a-v1` is the name of a model"),
            ("{\"\": \"a-v2\"}", "an alias is empty"),
            ("{\"a\": 1}", "expected a string"),
            ("{\"a\": \"a-v1\"", "EOF"),
            ("a = [\"a-v1\"]", "expected a string"),
            ("a: a-v1", "TOML parse error"),
        ] {
            let error = parse(text, &targets()).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn new_files_replace_the_aliases_and_wrong_ones_do_not() {
        let folder = std::env::temp_dir().join(format!("siskin-aliases-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, next) = (folder.join("aliases.json"), folder.join("next"));
        let put = |text: &str| {
            std::fs::write(&next, text).unwrap();
            std::fs::rename(&next, &path).unwrap();
        };
        put("{\"a\": \"a-v1\"}");
        let aliases = Aliases::read(Some(path.clone()), &targets()).unwrap();
        let target = || aliases.current().get("a").cloned();
        put("{\"a\": \"a-v2\"}");
        assert_eq!(target().as_deref(), Some("a-v1"));
        aliases.reload_if_changed(&|| Ok(targets())).unwrap();
        assert_eq!(target().as_deref(), Some("a-v2"));
        put("{\"a\": \"a-v3\"}");
        let error = aliases.reload_if_changed(&|| Ok(targets())).unwrap_err().to_string();
        assert!(error.contains("aliases.json") && error.contains("a-v3"), "{error}");
        aliases.reload_if_changed(&|| Ok(targets())).expect("a wrong file is reported once");
        assert_eq!(target().as_deref(), Some("a-v2"));
        std::fs::remove_file(&path).unwrap();
        assert!(aliases.reload_if_changed(&|| Ok(targets())).is_err());
        assert_eq!(target().as_deref(), Some("a-v2"));
        put("a = 'a-v1'");
        aliases.reload_if_changed(&|| Ok(targets())).unwrap();
        assert_eq!(target().as_deref(), Some("a-v1"));
        let mut page = String::new();
        aliases.write_metrics(&mut page, |_| true);
        assert!(page.contains("siskin_model_alias{alias=\"a\",model=\"a-v1\"} 1\n"), "{page}");
        assert!(page.contains("siskin_alias_reload_failures_total 2\n"), "{page}");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Aliases::read(Some(path), &targets()).is_err(), "the server does not start without its file");
    }
}
