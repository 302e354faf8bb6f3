//! The text files of the workspace, read once.

use std::fs;
use std::path::Path;

/// Folders without own sources: build outputs, downloads, version control.
const SKIPPED: [&str; 7] =
    [".git", ".models", ".venv", "target", "fuzz/artifacts", "fuzz/corpus", "node_modules"];
/// Extensions of the files that the rules read.
const KINDS: [&str; 15] =
    ["rs", "toml", "md", "txt", "py", "c", "cpp", "h", "cu", "cuh", "kt", "java", "swift", "yml", "1"];

/// A text file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The path, relative to the workspace root, with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// Creates an artificial file, for testing the rules themselves.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Iterates over the lines of a Markdown file outside of code blocks, with their numbers.
    pub fn lines_outside_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut is_code = false;
        (1..).zip(self.text.lines()).filter(move |(_, line)| {
            is_code ^= line.trim_start().starts_with("```");
            !is_code
        })
    }

    /// Returns true if the whole file is test code: an integration test, a bench, or a `tests.rs` next to code.
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || self.path.split('/').rev().skip(1).any(|folder| folder == "tests" || folder == "benches")
    }
}

/// The text files of a workspace, sorted by path.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The files that the rules read.
    pub files: Vec<SourceFile>,
    /// All paths, including folders and files that the rules do not read.
    pub paths: Vec<String>,
}

impl Tree {
    /// Reads the workspace at `root`.
    ///
    /// # Panics
    /// If a folder or text file cannot be read.
    pub fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.walk(root, "");
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.paths.sort();
        tree
    }

    /// Creates an artificial tree of these files.
    pub fn from_files(files: &[(&str, &str)]) -> Self {
        let files: Vec<_> = files.iter().map(|(path, text)| SourceFile::new(path, text)).collect();
        let paths = files.iter().map(|file| file.path.clone()).collect();
        Self { files, paths }
    }

    fn walk(&mut self, root: &Path, folder: &str) {
        let at = root.join(folder);
        let entries = fs::read_dir(&at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if SKIPPED.iter().any(|skipped| *skipped == name || *skipped == path) {
                continue;
            }
            self.paths.push(path.clone());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                self.walk(root, &path);
            } else if path.rsplit('.').next().is_some_and(|end| KINDS.contains(&end)) {
                let text = fs::read_to_string(entry.path()).unwrap_or_else(|error| panic!("{path}: {error}"));
                self.files.push(SourceFile { path, text });
            }
        }
    }

    /// Iterates over the Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Returns the file at `path`.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the lines of the list at `path`, without blank lines and comments, or an empty list if the file is
    /// missing.
    pub fn list(&self, path: &str) -> Vec<String> {
        let text = self.file(path).map_or("", |file| file.text.as_str());
        text.lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
            .filter(|line| !line.is_empty())
            .collect()
    }
}
