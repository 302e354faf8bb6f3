//! A download that is under way: its bytes so far, and which of them have arrived.
//!
//! Beside the file of bytes there is a journal: a first line with the digest and the length, then a line `START END` for
//! each range whose bytes have been written. A process that is killed leaves both; the next one continues from there. A
//! last line that was cut off is ignored. Whether the bytes are right is decided by the digest of the whole file alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use crate::ranges::RangeSet;

/// A journal has at most this many bytes: half a million ranges.
const MAX_JOURNAL_BYTES: u64 = 16 << 20;

/// What a download must become, to be continued.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Header {
    digest: String,
    bytes: u64,
}

/// The files of a download.
pub(crate) struct Journal {
    bytes: File,
    state: Mutex<State>,
    bytes_path: PathBuf,
    journal_path: PathBuf,
}

struct State {
    lines: File,
    arrived: RangeSet,
}

impl Journal {
    /// Opens the download to `path`, whose extension `.siskin-part` is added, or begins it. What a download of another
    /// digest or length left is replaced.
    pub(crate) fn open(path: &Path, digest: &str, bytes: u64) -> Result<Self> {
        let [bytes_path, journal_path] = paths(path);
        let header = Header { digest: digest.to_owned(), bytes };
        let arrived = arrived(path, &header);
        let begin = || -> io::Result<(File, File)> {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).open(&bytes_path)?;
            // Reserves nothing on most file systems; disk space is checked before.
            file.set_len(bytes)?;
            // Written anew, so that it has no line that was cut off.
            let mut lines = File::create(&journal_path)?;
            let mut text = serde_json::to_string(&header).map_err(io::Error::other)?;
            text.push('\n');
            for range in arrived.ranges() {
                text.push_str(&line(range));
            }
            lines.write_all(text.as_bytes())?;
            Ok((file, lines))
        };
        let (file, lines) = begin().map_err(|error| Error::io(bytes_path.display().to_string(), &error))?;
        Ok(Self { bytes: file, state: Mutex::new(State { lines, arrived }), bytes_path, journal_path })
    }

    /// Writes bytes that have arrived.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let write = || {
            write_at(&self.bytes, at, bytes)?;
            let range = at..at + bytes.len() as u64;
            let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            state.lines.write_all(line(&range).as_bytes())?;
            state.arrived.insert(range);
            Ok(())
        };
        write().map_err(|error| self.failed(&error))
    }

    /// Forgets all bytes.
    pub(crate) fn restart(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.arrived = RangeSet::default();
        // Without its first line, the journal is not read again.
        state.lines.set_len(0).map_err(|error| self.failed(&error))
    }

    pub(crate) fn arrived(&self) -> RangeSet {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).arrived.clone()
    }

    /// Reads bytes that have arrived.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        read_at(&self.bytes, at, bytes).map_err(|error| self.failed(&error))
    }

    /// Makes the download the file at `path`, which is complete or is not there.
    pub(crate) fn commit(self, path: &Path) -> Result<()> {
        let Self { bytes, bytes_path, journal_path, .. } = self;
        let commit = || {
            bytes.sync_all()?;
            drop(bytes);
            std::fs::rename(&bytes_path, path)?;
            std::fs::remove_file(&journal_path)
        };
        commit().map_err(|error| Error::io(path.display().to_string(), &error))
    }

    /// Removes the files of the download.
    pub(crate) fn discard(self) {
        let Self { bytes, bytes_path, journal_path, .. } = self;
        drop(bytes);
        // What stays is replaced by the next download.
        let _ = std::fs::remove_file(bytes_path);
        let _ = std::fs::remove_file(journal_path);
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::io(self.bytes_path.display().to_string(), error)
    }
}

/// Returns how many bytes of a download to `path` have arrived, without opening it.
pub(crate) fn arrived_bytes(path: &Path, digest: &str, bytes: u64) -> u64 {
    arrived(path, &Header { digest: digest.to_owned(), bytes }).count()
}

/// Returns the file of bytes and the journal of a download to `path`.
fn paths(path: &Path) -> [PathBuf; 2] {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".siskin-part", ".siskin-journal"].map(|end| path.with_file_name(format!("{name}{end}")))
}

/// Returns what has arrived of a download to `path`.
fn arrived(path: &Path, header: &Header) -> RangeSet {
    let [bytes_path, journal_path] = paths(path);
    match bytes_path.exists() {
        true => read(&journal_path, header).unwrap_or_default(),
        false => RangeSet::default(),
    }
}

fn line(range: &Range<u64>) -> String {
    format!("{} {}\n", range.start, range.end)
}

/// Returns the ranges of a journal; `None` if it is not one for this download.
fn read(path: &Path, expected: &Header) -> Option<RangeSet> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_JOURNAL_BYTES).read_to_string(&mut text).ok()?;
    parse(&text, expected)
}

fn parse(text: &str, expected: &Header) -> Option<RangeSet> {
    let (header, lines) = text.split_once('\n')?;
    if serde_json::from_str::<Header>(header).ok()? != *expected {
        return None;
    }
    let mut arrived = RangeSet::default();
    // A last line without its end was cut off.
    let complete = lines.rsplit_once('\n').map_or("", |(complete, _)| complete);
    for line in complete.lines() {
        let (start, end) = line.split_once(' ')?;
        let range = start.parse().ok()?..end.parse().ok()?;
        if range.end > expected.bytes || range.start > range.end {
            return None;
        }
        arrived.insert(range);
    }
    Some(arrived)
}

#[cfg(unix)]
fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(unix)]
fn read_at(file: &File, at: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        (at, bytes) = (at + count as u64, &bytes[count..]);
    }
    Ok(())
}

#[cfg(windows)]
fn read_at(file: &File, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => (at, bytes) = (at + count as u64, &mut bytes[count..]),
        }
    }
    Ok(())
}

/// Reads a journal of a file of 1,000 bytes.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(bytes: &[u8]) {
    let header = Header { digest: "a".to_owned(), bytes: 1000 };
    let lines = String::from_utf8_lossy(bytes);
    let Ok(first) = serde_json::to_string(&header) else { return };
    let _ = parse(&lines, &header);
    if let Some(arrived) = parse(&format!("{first}\n{lines}"), &header) {
        assert!(arrived.count() <= 1000 && arrived.prefix() <= 1000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("siskin-journal-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_download_continues_where_it_stopped() {
        let folder = Folder::new("continue");
        let path = folder.0.join("file");
        let journal = Journal::open(&path, "aa", 10).unwrap();
        journal.write(6, b"ghij").unwrap();
        journal.write(0, b"ab").unwrap();
        drop(journal);
        let journal = Journal::open(&path, "aa", 10).unwrap();
        assert_eq!(journal.arrived().missing(10, 100), vec![2..6]);
        journal.write(2, b"cdef").unwrap();
        let mut bytes = [0; 10];
        journal.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcdefghij");
        journal.commit(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abcdefghij");
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "the journal is gone");
    }

    #[test]
    fn a_journal_that_was_cut_off_anywhere_is_safe() {
        let folder = Folder::new("cut");
        let path = folder.0.join("file");
        let journal = Journal::open(&path, "aa", 1000).unwrap();
        journal.write(100, &[1; 100]).unwrap();
        journal.write(300, &[1; 100]).unwrap();
        drop(journal);
        let lines = folder.0.join("file.siskin-journal");
        let whole = std::fs::read(&lines).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&lines, &whole[..length]).unwrap();
            let arrived = Journal::open(&path, "aa", 1000).unwrap().arrived();
            // Each range is there as a whole or not at all.
            for range in arrived.ranges() {
                assert!([100..200, 300..400].contains(range), "{length}: {arrived:?}");
            }
        }
    }

    #[test]
    fn another_file_begins_anew() {
        let folder = Folder::new("other");
        let path = folder.0.join("file");
        for (digest, bytes, text) in [
            ("bb", 10, "{\"digest\":\"aa\",\"bytes\":10}\n0 5\n"),
            ("aa", 11, "{\"digest\":\"aa\",\"bytes\":10}\n0 5\n"),
            ("aa", 10, "{\"digest\":\"aa\",\"bytes\":10}\n5 50\n"),
            ("aa", 10, "{\"digest\":\"aa\",\"bytes\":10}\n5 3\n"),
            ("aa", 10, "{\"digest\":\"aa\",\"bytes\":10}\nx y\n"),
            ("aa", 10, "\u{0}\u{0}\u{0}"),
        ] {
            std::fs::write(folder.0.join("file.siskin-part"), [7; 5]).unwrap();
            std::fs::write(folder.0.join("file.siskin-journal"), text).unwrap();
            assert_eq!(Journal::open(&path, digest, bytes).unwrap().arrived(), RangeSet::default(), "{text}");
        }
        std::fs::remove_file(folder.0.join("file.siskin-part")).unwrap();
        std::fs::write(folder.0.join("file.siskin-journal"), "{\"digest\":\"aa\",\"bytes\":10}\n0 5\n")
            .unwrap();
        assert_eq!(Journal::open(&path, "aa", 10).unwrap().arrived(), RangeSet::default());
    }

    #[test]
    fn a_restarted_download_has_no_bytes() {
        let folder = Folder::new("restart");
        let path = folder.0.join("file");
        let journal = Journal::open(&path, "aa", 10).unwrap();
        journal.write(0, b"abc").unwrap();
        journal.restart().unwrap();
        journal.write(5, b"f").unwrap();
        assert_eq!(journal.arrived().count(), 1);
        drop(journal);
        assert_eq!(Journal::open(&path, "aa", 10).unwrap().arrived().count(), 0);
    }
}
