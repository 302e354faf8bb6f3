//! The state of a run in one file, which appears under its name only when it is complete.
//!
//! The file: the magic, the length of a JSON header, the header, then the tables one after the other, and a checksum
//! of all of it. The header names every table with its size and holds all other state: the step, the data position,
//! the state of schedule and loss scaler.

mod folder;

pub use folder::CheckpointFolder;

use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use siskin_format::file::{AtomicFile, parse_json};
use siskin_format::{Error, ErrorKind, Result};

use crate::state::{TableData, Tables};

const MAGIC: [u8; 8] = *b"SISKTRN2";
/// The maximum size of a header: names and a few numbers.
const MAX_HEADER_BYTES: u64 = 64 << 20;
const MAX_VALUES: usize = 1 << 22;

/// A table: its name, whether it holds f32, and its bytes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    numbers: bool,
    bytes: u64,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Header {
    state: Value,
    tables: Vec<Entry>,
}

/// The state needed to resume a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// All state other than tables.
    pub state: Value,
    /// Tables by name.
    pub tables: Tables,
}

impl Checkpoint {
    /// Returns the table `name` as f32; it must have `count` elements.
    pub fn numbers(&self, name: &str, count: usize) -> Result<Vec<f32>> {
        let place = || format!("checkpoint.{name}");
        match self.tables.get(name) {
            Some(TableData::Numbers(numbers)) if numbers.len() == count => Ok(numbers.clone()),
            Some(other) => {
                let message = format!("expected {count} f32 values, found {} bytes", other.view().bytes());
                Err(Error::new(ErrorKind::Shape, place(), message))
            }
            None => {
                let message = "missing in the checkpoint; it belongs to a different run";
                Err(Error::new(ErrorKind::Missing, place(), message))
            }
        }
    }

    /// Writes a file of a run's folder, without following symbolic links.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut file = AtomicFile::create_own(path, |_| true)?;
        let io = |error| Error::io(path.display().to_string(), &error);
        let entry = |(name, data): (&String, &TableData)| Entry {
            name: name.clone(),
            numbers: matches!(data, TableData::Numbers(_)),
            bytes: data.view().bytes() as u64,
        };
        let header = Header { state: self.state.clone(), tables: self.tables.iter().map(entry).collect() };
        let header = serde_json::to_vec(&header)
            .map_err(|error| Error::argument("checkpoint", format!("cannot be written: {error}")))?;
        let mut sum = Checksum::default();
        let mut write = |bytes: &[u8]| {
            sum.add(bytes);
            file.write_all(bytes).map_err(io)
        };
        write(&MAGIC)?;
        write(&(header.len() as u64).to_le_bytes())?;
        write(&header)?;
        for data in self.tables.values() {
            match data {
                TableData::Bytes(bytes) => write(bytes)?,
                TableData::Numbers(numbers) => numbers.chunks(1 << 16).try_for_each(|part| {
                    write(&part.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
                })?,
            }
        }
        file.write_all(&sum.value().to_le_bytes()).map_err(io)?;
        file.commit()
    }

    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let io = |error| Error::io(&place, &error);
        let mut file = std::fs::File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        Self::read(&mut file, length).map_err(|error| error.within(&place))
    }

    /// Reads `length` bytes.
    pub fn read(from: &mut dyn Read, length: u64) -> Result<Self> {
        let mut sum = Checksum::default();
        let mut left = length;
        let mut read = |count: u64| -> Result<Vec<u8>> {
            left = left.checked_sub(count).ok_or_else(|| Error::corrupt("checkpoint", "ends too early"))?;
            let mut bytes =
                vec![0; usize::try_from(count).map_err(|_| Error::corrupt("checkpoint", "too large"))?];
            from.read_exact(&mut bytes).map_err(|error| Error::io("checkpoint", &error))?;
            Ok(bytes)
        };
        let magic = read(8)?;
        if magic != MAGIC {
            let message = "not a checkpoint of this version; train again in a different folder";
            return Err(Error::new(ErrorKind::Version, "checkpoint", message));
        }
        let size = read(8)?;
        let header_length = u64::from_le_bytes(size[..].try_into().unwrap_or_default());
        if header_length > MAX_HEADER_BYTES {
            return Err(Error::corrupt("checkpoint.header", format!("of {header_length} bytes")));
        }
        let bytes = read(header_length)?;
        [&magic, &size, &bytes].into_iter().for_each(|part| sum.add(part));
        let header: Header = parse_json(&bytes, "checkpoint.header", MAX_VALUES)?;
        let mut tables = Tables::new();
        for entry in header.tables {
            let bytes = read(entry.bytes)?;
            sum.add(&bytes);
            let data = match (entry.numbers, bytes.as_chunks::<4>()) {
                (false, _) => TableData::Bytes(bytes),
                (true, (words, [])) => {
                    TableData::Numbers(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
                }
                (true, _) => {
                    return Err(Error::corrupt(
                        format!("checkpoint.{}", entry.name),
                        "not a whole number of f32 values",
                    ));
                }
            };
            if tables.insert(entry.name.clone(), data).is_some() {
                return Err(Error::corrupt(format!("checkpoint.{}", entry.name), "occurs twice"));
            }
        }
        let want = u64::from_le_bytes(read(8)?[..].try_into().unwrap_or_default());
        if want != sum.value() {
            let message = "the checksum does not match; use an earlier checkpoint";
            return Err(Error::corrupt("checkpoint", message));
        }
        Ok(Self { state: header.state, tables })
    }
}

/// FNV-1a over words: it detects corruption, not tampering.
struct Checksum {
    value: u64,
    pending: Vec<u8>,
}

impl Default for Checksum {
    fn default() -> Self {
        Self { value: 0xcbf2_9ce4_8422_2325, pending: Vec::with_capacity(8) }
    }
}

impl Checksum {
    fn word(&mut self, word: u64) {
        self.value = (self.value ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    fn add(&mut self, bytes: &[u8]) {
        let missing = (8 - self.pending.len()) % 8;
        let (first, rest) = bytes.split_at(missing.min(bytes.len()));
        self.pending.extend(first);
        if self.pending.len() == 8 {
            let word = u64::from_le_bytes(self.pending[..].try_into().unwrap_or_default());
            self.word(word);
            self.pending.clear();
        }
        let (words, rest) = rest.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        self.pending.extend(rest);
    }

    fn value(mut self) -> u64 {
        let pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|byte| self.word(u64::from(*byte) + 1));
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn example() -> Checkpoint {
        let tables = [
            ("a".to_owned(), TableData::Numbers(vec![1.0, -2.5, 3.0])),
            ("bytes".to_owned(), TableData::Bytes(vec![1, 2, 3, 4, 5])),
        ];
        Checkpoint { state: json!({"step": 7}), tables: tables.into_iter().collect() }
    }

    fn bytes() -> Vec<u8> {
        // Tests run in parallel: each call has a file of its own.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("siskin-checkpoint-{}-{number}", std::process::id()));
        example().save(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        bytes
    }

    #[test]
    fn checkpoints_round_trip() {
        let bytes = bytes();
        let checkpoint = Checkpoint::read(&mut &bytes[..], bytes.len() as u64).unwrap();
        assert_eq!(checkpoint, example());
        assert_eq!(checkpoint.numbers("a", 3).unwrap(), [1.0, -2.5, 3.0]);
        assert_eq!(checkpoint.numbers("a", 4).unwrap_err().kind(), ErrorKind::Shape);
        assert_eq!(checkpoint.numbers("b", 4).unwrap_err().kind(), ErrorKind::Missing);
    }

    #[test]
    fn changed_or_truncated_files_are_rejected() {
        let bytes = bytes();
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 4;
            assert!(Checkpoint::read(&mut &damaged[..], bytes.len() as u64).is_err(), "byte {place}");
            assert!(Checkpoint::read(&mut &bytes[..place], place as u64).is_err(), "{place} bytes");
        }
    }
}
