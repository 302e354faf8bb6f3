//! Verifies every byte of a file against its hashes.

use super::layout::{MINOR, SectionKind};
use super::{File, table, write};
use crate::container::{self, HEADER_BYTES, SECTION_BYTES, Section};
use crate::{Error, ErrorKind, Result};

/// Bytes hashed between two progress reports.
const CHUNK: usize = 4 << 20;

impl File {
    /// Reads the whole file and compares every hash; the error names the section or tensor that differs. Reserved bytes
    /// must be zero, unless the file's minor version is newer than this library's.
    ///
    /// `progress` is called with the bytes done and the total; returning `false` aborts.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        if (0..=MINOR).contains(&container::minor(&self.bytes)) {
            container::check_reserved(&self.bytes, self.sections.len())?;
            table::check_reserved(&self.section(SectionKind::TensorTable).unwrap_or_default())?;
        }
        let mut work = Work { file: self, done: 0, progress };
        let mut end = HEADER_BYTES + self.sections.len() * SECTION_BYTES;
        let mut sections: Vec<&Section> = self.sections.iter().collect();
        sections.sort_unstable_by_key(|section| (section.offset, section.length));
        for section in sections {
            let range = section.range();
            work.zeros(end..range.start)?;
            end = range.end;
            match section.kind() {
                Some(SectionKind::TensorData) => work.tensors(section)?,
                _ => work.compare(range, &section.hash, &section.name())?,
            }
        }
        work.zeros(end..self.bytes.len())
    }
}

struct Work<'a> {
    file: &'a File,
    done: u64,
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl Work<'_> {
    fn tensors(&mut self, section: &Section) -> Result<()> {
        let file = self.file;
        let mut end = section.range().start;
        for (tensor, hash) in file.tensors.iter().zip(&file.hashes) {
            let range = tensor.offset..tensor.offset + tensor.data.len();
            self.zeros(end..range.start)?;
            end = range.end;
            self.compare(range, hash, &format!("tensor {}", tensor.name))?;
        }
        self.zeros(end..section.range().end)?;
        match write::data_hash(file.hashes.iter()) == section.hash {
            true => Ok(()),
            false => Err(differs(&section.name())),
        }
    }

    fn compare(&mut self, range: std::ops::Range<usize>, expected: &[u8; 32], name: &str) -> Result<()> {
        let mut hasher = blake3::Hasher::new();
        for chunk in self.file.bytes.get(range).unwrap_or_default().chunks(CHUNK) {
            hasher.update(chunk);
            self.advance(chunk.len())?;
        }
        match hasher.finalize().as_bytes() == expected {
            true => Ok(()),
            false => Err(differs(name)),
        }
    }

    fn zeros(&mut self, range: std::ops::Range<usize>) -> Result<()> {
        let (start, padding) = (range.start, self.file.bytes.get(range).unwrap_or_default());
        if padding.iter().any(|&byte| byte != 0) {
            return Err(differs(&format!("padding at byte {start}")));
        }
        self.advance(padding.len())
    }

    fn advance(&mut self, bytes: usize) -> Result<()> {
        self.done += bytes as u64;
        match (self.progress)(self.done, self.file.bytes.len() as u64) {
            true => Ok(()),
            false => Err(Error::canceled("verify")),
        }
    }
}

pub(super) fn differs(name: &str) -> Error {
    Error::new(ErrorKind::Integrity, name, "hash mismatch: the file is corrupt; convert or download it again")
}
