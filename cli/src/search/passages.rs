//! The passages of the text files of a folder.

use siskin::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// The maximum number of passages.
const MAX_PASSAGES: usize = 10_000;
/// The maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The maximum depth of folders.
const MAX_DEPTH: usize = 32;
/// The size of a passage in bytes from which on it ends with the paragraph, and that which it never exceeds by more than a
/// line.
const PASSAGE_BYTES: usize = 600;
const MAX_PASSAGE_BYTES: usize = 1500;

/// A passage of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub(super) path: PathBuf,
    /// The number of its first line, from 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// Returns the passages of a file, or of the text files in a folder and its subfolders, in the order of their paths.
pub(super) fn read(path: &Path) -> Result<Vec<Passage>> {
    let mut passages = Vec::new();
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
    match metadata.is_dir() {
        true => read_folder(path, 0, &mut passages)?,
        false => read_file(path, &mut passages)?,
    }
    if passages.is_empty() {
        let message = "contains no text; hidden, binary and large files are skipped";
        return Err(Error::new(ErrorKind::Missing, path.display().to_string(), message));
    }
    Ok(passages)
}

fn read_folder(folder: &Path, depth: usize, passages: &mut Vec<Passage>) -> Result<()> {
    let io = |error: std::io::Error| Error::io(folder.display().to_string(), &error);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        // Links could lead outside or in circles.
        entries.push((entry.path(), entry.file_type().map_err(io)?));
    }
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (path, kind) in entries.into_iter().filter(|(path, _)| !is_hidden(path)) {
        if kind.is_dir() && depth < MAX_DEPTH {
            read_folder(&path, depth + 1, passages)?;
        } else if kind.is_file() {
            read_file(&path, passages)?;
        }
    }
    Ok(())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn read_file(path: &Path, passages: &mut Vec<Passage>) -> Result<()> {
    let io = |error: std::io::Error| Error::io(path.display().to_string(), &error);
    if std::fs::metadata(path).map_err(io)?.len() > MAX_FILE_BYTES {
        return Ok(());
    }
    let Ok(text) = String::from_utf8(std::fs::read(path).map_err(io)?) else { return Ok(()) };
    if text.contains('\0') {
        return Ok(());
    }
    passages.extend(split(&text).map(|(line, text)| Passage { path: path.to_owned(), line, text }));
    if passages.len() > MAX_PASSAGES {
        let message = format!("more than {MAX_PASSAGES} passages; search a smaller folder");
        return Err(Error::new(ErrorKind::TooLong, path.display().to_string(), message));
    }
    Ok(())
}

/// Splits a text into passages of whole lines, with the number of their first line: at blank lines, unless a passage is
/// short.
fn split(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut passages: Vec<(usize, String)> = Vec::new();
    let mut current: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
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
        let texts: Vec<String> = read(&folder).unwrap().into_iter().map(|passage| passage.text).collect();
        assert_eq!(texts, ["about birds", "about trains"]);
        assert_eq!(read(&folder.join("b.txt")).unwrap()[0].line, 1);
        let error = read(&folder.join(".git").join("none")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(read(&folder.join("zeros.bin")).unwrap_err().kind(), ErrorKind::Missing);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
