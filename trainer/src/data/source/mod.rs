//! Where documents come from: one file for each kind of source, and one list.
//!
//! Documents are read one after the other, in the order of the paths, and within folders by name. What is wrong with
//! one gives an error that names file and line, and ends the reading.

mod json_lines;
mod lines;
mod packed;
mod text;

pub use json_lines::JsonLines;
pub use packed::PackedTokens;
pub use text::{Cut, Text};

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use siskin::{Error, Result};

use super::hash;
use super::packed::Packed;

/// Longer documents and lines are refused, in bytes: no tokenizer takes them.
pub const LONGEST: usize = 1 << 26;
/// Folders are followed no deeper.
const DEEPEST: usize = 64;

/// What a document consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Texts; an empty one stands for one that may be left out.
    Texts(Vec<String>),
    /// Texts that are tokens already.
    Tokens(Vec<Vec<u32>>),
}

/// Something to learn from: a text, or texts that go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its texts.
    pub body: Body,
    /// The class that it is of.
    pub label: Option<u32>,
    /// File and line, or file and record.
    pub place: String,
}

impl Document {
    /// A number for what it consists of, the same wherever it stands.
    pub fn hash(&self) -> u64 {
        let start = u64::from(self.label.unwrap_or(u32::MAX));
        match &self.body {
            Body::Texts(texts) => texts.iter().fold(start, |state, text| hash::bytes(state, text.as_bytes())),
            Body::Tokens(parts) => parts.iter().fold(start, |state, part| hash::tokens(state, part)),
        }
    }
}

/// Documents one after the other.
pub type Documents = Box<dyn Iterator<Item = Result<Document>> + Send>;

/// A field of a line of JSON that holds a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Whether it may be missing.
    pub optional: bool,
}

impl Field {
    /// One that every line has.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), optional: false }
    }
}

/// What is wanted of sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Where plain text is cut.
    pub cut: Cut,
    /// The texts of a document.
    pub fields: Vec<Field>,
    /// The field that holds its class, where one is wanted.
    pub label: Option<String>,
    /// The names of the classes, by their numbers; where it is empty, classes are given by number.
    pub classes: Vec<String>,
    /// The [identity](super::packed::identity) of the tokenizer that made packed tokens; 0 for any.
    pub identity: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            cut: Cut::default(),
            fields: vec![Field::new("text")],
            label: None,
            classes: Vec::new(),
            identity: 0,
        }
    }
}

impl Reading {
    /// Refuses documents of several texts, or with classes, of a file that has neither.
    fn plain(&self, place: &str) -> Result<()> {
        if self.fields.len() == 1 && self.label.is_none() {
            return Ok(());
        }
        let names: Vec<&str> =
            self.fields.iter().map(|field| field.name.as_str()).chain(self.label.as_deref()).collect();
        let message =
            format!("plain text has no {}; give lines of JSON (.jsonl) with these fields", names.join(", "));
        Err(Error::argument(place, message))
    }
}

/// A kind of source.
pub trait Source: Sync {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// How the names of its files end.
    fn extensions(&self) -> &'static [&'static str];

    /// The documents of a file.
    fn read(&self, path: &Path, reading: &Reading) -> Result<Documents>;
}

/// Every kind. Files with other names are read as the first.
pub const SOURCES: &[&dyn Source] = &[&Text, &JsonLines, &PackedTokens];

fn source_of(path: &Path) -> Option<&'static dyn Source> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    SOURCES.iter().copied().find(|source| source.extensions().contains(&extension.as_str()))
}

/// The documents of files and folders.
pub fn documents(paths: &[PathBuf], reading: &Reading) -> Result<Documents> {
    Ok(Box::new(Chain { files: files(paths)?, reading: reading.clone(), open: None }))
}

/// The records of a file of packed tokens, which need no reading; none of other files.
pub fn packed_records(path: &Path, reading: &Reading) -> Result<Option<Packed>> {
    let is_packed = source_of(path).is_some_and(|source| source.name() == PackedTokens.name());
    is_packed.then(|| packed::open(path, reading)).transpose()
}

/// The files of files and folders, in the order in which they are read: of a folder those whose names a source knows.
pub fn files(paths: &[PathBuf]) -> Result<VecDeque<PathBuf>> {
    let mut files = VecDeque::new();
    for path in paths {
        let place = path.display().to_string();
        let metadata = fs::metadata(path).map_err(|error| Error::io(&place, &error))?;
        if !metadata.is_dir() {
            files.push_back(path.clone());
            continue;
        }
        let before = files.len();
        walk(path, 0, &mut files)?;
        if files.len() == before {
            let known: Vec<&str> = SOURCES.iter().flat_map(|source| source.extensions()).copied().collect();
            return Err(Error::argument(place, format!("holds no file that ends in .{}", known.join(", ."))));
        }
    }
    Ok(files)
}

fn walk(folder: &Path, depth: usize, files: &mut VecDeque<PathBuf>) -> Result<()> {
    let place = folder.display().to_string();
    if depth > DEEPEST {
        return Err(Error::argument(place, format!("lies more than {DEEPEST} folders deep")));
    }
    let io = |error: io::Error| Error::io(&place, &error);
    let mut entries = fs::read_dir(folder).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // A link to a folder is no folder here: it might lead back.
        if entry.file_type().map_err(io)?.is_dir() {
            walk(&path, depth + 1, files)?;
        } else if source_of(&path).is_some() && path.is_file() {
            files.push_back(path);
        }
    }
    Ok(())
}

/// The documents of one file after the other.
struct Chain {
    files: VecDeque<PathBuf>,
    reading: Reading,
    open: Option<Documents>,
}

impl Iterator for Chain {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.open.as_mut().and_then(Iterator::next) {
                Some(Err(error)) => return Some(Err(self.end(error))),
                Some(document) => return Some(document),
                None => {}
            }
            let path = self.files.pop_front()?;
            let source = source_of(&path).unwrap_or(SOURCES[0]);
            match source.read(&path, &self.reading) {
                Ok(documents) => self.open = Some(documents),
                Err(error) => return Some(Err(self.end(error))),
            }
        }
    }
}

impl Chain {
    fn end(&mut self, error: Error) -> Error {
        self.files.clear();
        self.open = None;
        error
    }
}

/// What a file is read from, and its name.
fn open(path: &Path) -> Result<(Box<dyn Read + Send>, String)> {
    let place = path.display().to_string();
    let file = fs::File::open(path).map_err(|error| Error::io(&place, &error))?;
    Ok((Box::new(file), place))
}
