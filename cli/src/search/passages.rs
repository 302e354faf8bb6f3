//! The passages of the text files of a folder.

use siskin::{Error, ErrorKind, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum number of passages.
const MAX_PASSAGES: usize = 10_000;
/// The maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The maximum depth of folders.
const MAX_DEPTH: usize = 32;
/// A passage of this size in bytes ends at the next blank line.
const PASSAGE_BYTES: usize = 600;
/// The maximum size of a passage in bytes; longer lines are split.
const MAX_PASSAGE_BYTES: usize = 1500;

/// A passage of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub(super) path: PathBuf,
    /// The number of its first line, from 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// The passages of files.
#[derive(Debug, Default)]
pub(super) struct Passages {
    pub(super) list: Vec<Passage>,
    /// Files and folders that could not be read.
    pub(super) unreadable: usize,
    /// Files that are too large, or not text in UTF-8.
    pub(super) skipped: usize,
}

impl Passages {
    /// Reads the passages of a file, or of the text files in a folder and its subfolders, in the order of their paths.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut passages = Self::default();
        let io = |error: std::io::Error| Error::io(path.display().to_string(), &error);
        let metadata = std::fs::metadata(path).map_err(io)?;
        match (metadata.is_dir(), metadata.is_file()) {
            (true, _) => passages.add_folder(path, 0)?,
            (false, true) => passages.add_file(path)?,
            (false, false) => {
                return Err(Error::argument(path.display().to_string(), "expected a file or a folder"));
            }
        }
        if passages.list.is_empty() {
            let message = "contains no text; hidden, binary and large files are skipped";
            return Err(Error::new(ErrorKind::Missing, path.display().to_string(), message));
        }
        Ok(passages)
    }

    fn add_folder(&mut self, folder: &Path, depth: usize) -> Result<()> {
        let Ok(entries) = std::fs::read_dir(folder) else {
            self.unreadable += 1;
            return Ok(());
        };
        // Links could lead outside or in circles.
        let kind = |entry: std::fs::DirEntry| Some((entry.path(), entry.file_type().ok()?));
        let mut entries: Vec<_> = entries.flatten().filter_map(kind).collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, kind) in entries.into_iter().filter(|(path, _)| !is_hidden(path)) {
            if kind.is_dir() && depth < MAX_DEPTH {
                self.add_folder(&path, depth + 1)?;
            } else if kind.is_file() {
                self.add_file(&path)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<()> {
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(path);
        if opened.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).is_err() {
            self.unreadable += 1;
            return Ok(());
        }
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let Some(text) = text.filter(|text| text.len() as u64 <= MAX_FILE_BYTES) else {
            self.skipped += 1;
            return Ok(());
        };
        self.list.extend(split(&text).map(|(line, text)| Passage { path: path.to_owned(), line, text }));
        if self.list.len() > MAX_PASSAGES {
            let message = format!("more than {MAX_PASSAGES} passages; search a smaller folder");
            return Err(Error::new(ErrorKind::TooLong, path.display().to_string(), message));
        }
        Ok(())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Splits a text into passages, with the number of their first line: at blank lines, unless a passage is short, and at the
/// maximum size.
fn split(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut passages: Vec<(usize, String)> = Vec::new();
    let mut current: Option<(usize, String)> = None;
    let lines =
        text.lines().enumerate().flat_map(|(index, line)| pieces(line).map(move |piece| (index, piece)));
    for (index, line) in lines {
        let is_blank = line.trim().is_empty();
        let length = current.as_ref().map_or(0, |(_, text)| text.len());
        let is_full = is_blank && length >= PASSAGE_BYTES || length + line.len() > MAX_PASSAGE_BYTES;
        if is_full {
            passages.extend(current.take());
        }
        if is_blank && current.is_none() {
            continue;
        }
        let (_, text) = current.get_or_insert_with(|| (index + 1, String::new()));
        text.push_str(line);
        text.push('\n');
    }
    passages.extend(current);
    passages.into_iter().map(|(line, text)| (line, text.trim_end().to_owned()))
}

/// Returns the pieces of a line, none of which exceeds the size of a passage.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let (mut rest, mut is_first) = (line, true);
    std::iter::from_fn(move || {
        if rest.is_empty() && !is_first {
            return None;
        }
        is_first = false;
        let end = rest.floor_char_boundary(MAX_PASSAGE_BYTES - 1);
        let (piece, others) = rest.split_at(end);
        rest = others;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passages_end_at_blank_lines_once_they_are_long_enough() {
        let paragraph = "word ".repeat(80);
        let text = format!("\n# Title\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}\n\nend\n");
        let passages: Vec<_> = split(&text).collect();
        assert_eq!(passages.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 8]);
        assert!(passages[0].1.starts_with("# Title\n\nword"));
        assert!(passages[1].1.ends_with("\n\nend"));
        assert_eq!(split("").count(), 0);
        assert_eq!(split("one\n\ntwo").collect::<Vec<_>>(), [(1, "one\n\ntwo".to_owned())]);
        let lines = "a line of some length\n".repeat(300);
        assert!(split(&lines).all(|(_, text)| text.len() <= MAX_PASSAGE_BYTES));
        assert_eq!(split(&lines).map(|(_, text)| text.lines().count()).sum::<usize>(), 300);
        let long = "é".repeat(2000);
        let passages: Vec<_> = split(&long).collect();
        assert!(passages.len() == 3 && passages.iter().all(|(line, text)| *line == 1 && text.len() <= 1500));
        assert_eq!(passages.into_iter().map(|(_, text)| text).collect::<String>(), long);
    }

    #[test]
    fn only_text_is_read() {
        let folder = std::env::temp_dir().join(format!("siskin-passages-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::create_dir_all(folder.join(".git")).unwrap();
        for (name, bytes) in [
            ("b.txt", &b"about birds"[..]),
            ("sub/a.md", b"about trains"),
            (".git/config", b"hidden"),
            ("image.png", b"\x89PNG\xff"),
            ("zeros.bin", b"a\0b"),
        ] {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        let read = Passages::read;
        let all = read(&folder).unwrap();
        let texts: Vec<&str> = all.list.iter().map(|passage| passage.text.as_str()).collect();
        assert_eq!((texts, all.skipped, all.unreadable), (vec!["about birds", "about trains"], 2, 0));
        assert_eq!(read(&folder.join("b.txt")).unwrap().list[0].line, 1);
        let error = read(&folder.join(".git").join("none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(read(&folder.join("zeros.bin")).unwrap_err().kind(), ErrorKind::Missing);
        assert_eq!(read(Path::new("/dev/null")).unwrap_err().kind(), ErrorKind::Argument);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
