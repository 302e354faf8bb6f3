//! Data sources: one file for each format, and one list.
//!
//! Documents are read one after the other, in the order of the paths, and within folders by name. An invalid document
//! gives an error that names file and line, and ends the reading.

mod json_lines;
mod lines;
mod packed;
mod text;

pub use json_lines::JsonLines;
pub use packed::PackedTokens;
pub use text::{DocumentSeparator, PlainText};

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use siskin_format::{Error, ErrorKind, Result};

use super::hash;
use super::packed::PackedTokenFile;

/// The maximum size of a document or line, in bytes; longer ones are refused.
pub const MAX_DOCUMENT_BYTES: usize = 1 << 26;
/// The maximum depth of folders.
const MAX_DEPTH: usize = 64;

/// The content of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Texts; an omitted optional text is empty.
    Texts(Vec<String>),
    /// Tokenized texts.
    Tokens(Vec<Vec<u32>>),
}

/// A document: one or more texts that form one training record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its content.
    pub body: Body,
    /// Its class.
    pub label: Option<u32>,
    /// File and line, or file and record.
    pub place: String,
}

impl Document {
    /// Returns a hash of its content, independent of its place.
    pub fn hash(&self) -> u64 {
        let start = u64::from(self.label.unwrap_or(u32::MAX));
        match &self.body {
            Body::Texts(texts) => texts.iter().fold(start, |state, text| hash::bytes(state, text.as_bytes())),
            Body::Tokens(parts) => parts.iter().fold(start, |state, part| hash::tokens(state, part)),
        }
    }
}

/// A stream of documents.
pub type Documents = Box<dyn Iterator<Item = Result<Document>> + Send>;

/// A field of a JSON line that holds a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Whether it may be missing.
    pub optional: bool,
}

impl Field {
    /// Creates a required field.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), optional: false }
    }
}

/// How sources are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Where plain text is split.
    pub separator: DocumentSeparator,
    /// The texts of a document.
    pub fields: Vec<Field>,
    /// The field that holds its class, if needed.
    pub label: Option<String>,
    /// The class names, by index; if empty, classes are given by index.
    pub classes: Vec<String>,
    /// The [identity](super::packed::identity) of the tokenizer that made packed tokens; 0 for any.
    pub identity: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            separator: DocumentSeparator::default(),
            fields: vec![Field::new("text")],
            label: None,
            classes: Vec::new(),
            identity: 0,
        }
    }
}

impl ReadOptions {
    /// Refuses plain text if documents need several texts or a class.
    fn plain(&self, place: &str) -> Result<()> {
        if self.fields.len() == 1 && self.label.is_none() {
            return Ok(());
        }
        let names: Vec<&str> =
            self.fields.iter().map(|field| field.name.as_str()).chain(self.label.as_deref()).collect();
        let message = format!(
            "plain text has no fields {}; use JSON lines (.jsonl) with these fields",
            names.join(", ")
        );
        Err(Error::argument(place, message))
    }
}

/// A data format.
pub trait DataFormat: Sync {
    /// Returns its name.
    fn name(&self) -> &'static str;

    /// Returns its file extensions.
    fn extensions(&self) -> &'static [&'static str];

    /// Returns the documents of a file.
    fn read(&self, path: &Path, reading: &ReadOptions) -> Result<Documents>;
}

/// Every format. Files with other extensions are read as the first.
pub const SOURCES: &[&dyn DataFormat] = &[&PlainText, &JsonLines, &PackedTokens];

fn source_of(path: &Path) -> Option<&'static dyn DataFormat> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    SOURCES.iter().copied().find(|source| source.extensions().contains(&extension.as_str()))
}

/// Returns the documents of files and folders.
pub fn documents(paths: &[PathBuf], reading: &ReadOptions) -> Result<Documents> {
    Ok(Box::new(ChainedDocuments { files: files(paths)?, reading: reading.clone(), open: None }))
}

/// Returns the records of a file of packed tokens, which need no tokenization; `None` for other files.
pub fn packed_records(path: &Path, reading: &ReadOptions) -> Result<Option<PackedTokenFile>> {
    let is_packed = source_of(path).is_some_and(|source| source.name() == PackedTokens.name());
    is_packed.then(|| packed::open(path, reading)).transpose()
}

/// Returns the files in files and folders, in reading order; in folders, only those with a known extension.
pub fn files(paths: &[PathBuf]) -> Result<VecDeque<PathBuf>> {
    let mut files = VecDeque::new();
    for path in paths {
        let place = path.display().to_string();
        let metadata = fs::metadata(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Error::new(ErrorKind::Missing, &*place, "no such file or directory");
            }
            Error::io(&*place, &error)
        })?;
        if !metadata.is_dir() {
            files.push_back(path.clone());
            continue;
        }
        let before = files.len();
        walk(path, 0, &mut files)?;
        if files.len() == before {
            let known: Vec<&str> = SOURCES.iter().flat_map(|source| source.extensions()).copied().collect();
            return Err(Error::argument(
                place,
                format!("contains no file with the extension .{}", known.join(", .")),
            ));
        }
    }
    Ok(files)
}

fn walk(folder: &Path, depth: usize, files: &mut VecDeque<PathBuf>) -> Result<()> {
    let place = folder.display().to_string();
    if depth > MAX_DEPTH {
        return Err(Error::argument(place, format!("nested more than {MAX_DEPTH} folders deep")));
    }
    let io = |error: io::Error| Error::io(&place, &error);
    let mut entries = fs::read_dir(folder).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // Links to folders are not followed: they might form a cycle.
        if entry.file_type().map_err(io)?.is_dir() {
            walk(&path, depth + 1, files)?;
        } else if source_of(&path).is_some() && path.is_file() {
            files.push_back(path);
        }
    }
    Ok(())
}

/// The documents of one file after the other.
struct ChainedDocuments {
    files: VecDeque<PathBuf>,
    reading: ReadOptions,
    open: Option<Documents>,
}

impl Iterator for ChainedDocuments {
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

impl ChainedDocuments {
    fn end(&mut self, error: Error) -> Error {
        self.files.clear();
        self.open = None;
        error
    }
}

/// Opens a file, and returns it with its name.
fn open(path: &Path) -> Result<(Box<dyn Read + Send>, String)> {
    let place = path.display().to_string();
    let file = fs::File::open(path).map_err(|error| Error::io(&place, &error))?;
    Ok((Box::new(file), place))
}
