//! Writing packed tokens.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use siskin_format::file::AtomicFile;
use siskin_format::{Error, Result};

use super::{HEADER, Header, MAGIC, width_of};
use crate::data::records::{RecordTable, Sink, TokenizedDocument};

/// Writes packed tokens. The file appears under its name when it is complete: if the writer is dropped before
/// [`PackedWriter::finish`], an existing file is unchanged.
///
/// Tokens are written to the file immediately; eight bytes per list are kept in memory.
#[derive(Debug)]
pub struct PackedWriter {
    out: BufWriter<AtomicFile>,
    place: String,
    header: Header,
    table: RecordTable,
}

impl PackedWriter {
    /// Creates a file of records with `parts` token lists each and ids below `vocabulary`, made by the tokenizer of
    /// this [identity](super::identity).
    pub fn create(path: impl AsRef<Path>, vocabulary: u32, parts: usize, identity: u64) -> Result<Self> {
        Self::create_from(path, &[], vocabulary, parts, identity)
    }

    /// Like [`Self::create`], but refuses to replace one of the input files, or anything but packed tokens.
    pub fn create_from(
        path: impl AsRef<Path>,
        inputs: &[PathBuf],
        vocabulary: u32,
        parts: usize,
        identity: u64,
    ) -> Result<Self> {
        let table = RecordTable::new(parts)?;
        let place = path.as_ref().display().to_string();
        let header = Header {
            width: width_of(vocabulary),
            vocabulary,
            parts: parts as u32,
            identity,
            records: 0,
            tokens: 0,
            labels: false,
            fingerprint: 0,
        };
        let out = AtomicFile::create_over(path, inputs, &[MAGIC])?;
        let mut writer = Self { out: BufWriter::new(out), place, header, table };
        writer.write(&[0; HEADER])?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| Error::io(&self.place, &error))
    }

    /// Returns the number of records written.
    pub fn documents(&self) -> usize {
        self.table.count()
    }

    /// Returns the number of tokens written.
    pub fn tokens(&self) -> u64 {
        self.table.starts.last().copied().unwrap_or(0)
    }

    /// Writes the tables and moves the file to its name.
    pub fn finish(mut self) -> Result<()> {
        self.header.tokens = self.tokens();
        let table = std::mem::replace(&mut self.table, RecordTable::new(1)?);
        self.header.records = table.count() as u64;
        self.header.fingerprint = table.fingerprint;
        self.header.labels = !table.labels.is_empty();
        let written = HEADER as u64 + self.header.tokens * u64::from(self.header.width);
        self.write(&[0; 8][..(written.next_multiple_of(8) - written) as usize])?;
        table.starts.iter().try_for_each(|start| self.write(&start.to_le_bytes()))?;
        table.labels.iter().try_for_each(|label| self.write(&label.to_le_bytes()))?;
        let Self { mut out, place, header, .. } = self;
        let io = |error: &std::io::Error| Error::io(&place, error);
        out.seek(SeekFrom::Start(0)).map_err(|error| io(&error))?;
        out.write_all(&header.bytes()).map_err(|error| io(&error))?;
        out.into_inner().map_err(|error| io(error.error()))?.commit()
    }
}

impl Sink for PackedWriter {
    fn push(&mut self, record: &TokenizedDocument) -> Result<()> {
        self.table.push(record, self.header.vocabulary).map_err(|error| error.within(&self.place))?;
        let width = self.header.width as usize;
        for token in record.parts.iter().flatten() {
            self.write(&token.to_le_bytes()[..width])?;
        }
        Ok(())
    }
}
