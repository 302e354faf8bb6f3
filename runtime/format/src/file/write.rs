//! Writes a file from front to back; tensors are streamed.

use super::File;
use super::layout::{CONTAINER, SectionKind, TENSOR_ALIGNMENT};
use super::metadata::Metadata;
use super::table::{self, TensorRecord, TensorSpec};
use crate::container::{HEADER_BYTES, Hash, REQUIRED, SECTION_ALIGNMENT, SECTION_BYTES, Section};
use crate::{Error, ErrorKind, Result};
use std::io::{Seek, SeekFrom, Write};

/// Bytes of padding that are written at once.
const PADDING_BYTES: usize = 4096;
/// The section table entries reserved before the tensors.
const MAX_SECTIONS: usize = (TENSOR_ALIGNMENT as usize - HEADER_BYTES) / SECTION_BYTES;

/// Writes a `.siskin` file: tensors first, one by one, then the other sections.
///
/// Only one tensor's chunk is in memory at a time. After an error the writer rejects further calls.
///
/// ```
/// use siskin_format::file::{File, FileWriter, Metadata, TensorSpec};
/// # fn main() -> siskin_format::Result<()> {
/// let mut writer = FileWriter::new(std::io::Cursor::new(Vec::new()))?;
/// let spec = TensorSpec::vector("output_norm.weight", 2);
/// writer.tensor(&spec, |out| {
///     out.write(&1.0f32.to_le_bytes())?;
///     out.write(&2.0f32.to_le_bytes())
/// })?;
/// let metadata = Metadata { architecture: "llama".into(), ..Metadata::default() };
/// let bytes = writer.finish(&metadata)?.into_inner();
/// let file = File::from_bytes(bytes)?;
/// assert_eq!(file.tensor("output_norm.weight").map(|tensor| tensor.floats()), Some(vec![1.0, 2.0]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileWriter<W> {
    out: W,
    position: u64,
    records: Vec<TensorRecord>,
    sections: Vec<Section>,
    failed: bool,
}

/// Receives the bytes of one tensor.
pub struct TensorSink<'a> {
    out: &'a mut (dyn Write + Send),
    hasher: blake3::Hasher,
    written: u64,
    length: u64,
}

impl TensorSink<'_> {
    /// Appends bytes. Exceeding the size of the tensor is an error.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written = self.written.saturating_add(bytes.len() as u64);
        if self.written > self.length {
            return Err(Error::argument("tensor", format!("wrote more than its {} bytes", self.length)));
        }
        self.hasher.update(bytes);
        self.out.write_all(bytes).map_err(|error| Error::io("tensor data", &error))
    }
}

impl<W: Write + Seek + Send> FileWriter<W> {
    /// Starts a file at the beginning of `out`, which must be empty.
    pub fn new(out: W) -> Result<Self> {
        let mut writer = Self { out, position: 0, records: Vec::new(), sections: Vec::new(), failed: false };
        writer.zeros(TENSOR_ALIGNMENT)?;
        Ok(writer)
    }

    /// Adds a tensor; `fill` must write exactly the bytes its shape takes.
    pub fn tensor(
        &mut self,
        spec: &TensorSpec,
        fill: impl FnOnce(&mut TensorSink<'_>) -> Result<()>,
    ) -> Result<()> {
        self.guarded(|writer| writer.add_tensor(spec, fill).map_err(|error| error.within(&spec.name)))
    }

    fn add_tensor(
        &mut self,
        spec: &TensorSpec,
        fill: impl FnOnce(&mut TensorSink<'_>) -> Result<()>,
    ) -> Result<()> {
        if !self.sections.is_empty() {
            return Err(Error::new(ErrorKind::State, "writer", "tensors must precede the other sections"));
        }
        if self.records.iter().any(|record| record.spec.name == spec.name) {
            return Err(Error::argument("name", "a tensor of this name exists already"));
        }
        let length = table::check(spec)?;
        self.pad(TENSOR_ALIGNMENT)?;
        let offset = self.position;
        let mut sink = TensorSink { out: &mut self.out, hasher: blake3::Hasher::new(), written: 0, length };
        fill(&mut sink)?;
        let (written, hash) = (sink.written, *sink.hasher.finalize().as_bytes());
        if written != length {
            return Err(Error::argument("tensor", format!("wrote only {written} of its {length} bytes")));
        }
        self.position += length;
        self.records.push(TensorRecord { spec: spec.clone(), offset, length, hash });
        Ok(())
    }

    /// Adds a section that readers may ignore if they do not know it: tokenizer, template, goldens, adapter, signature.
    /// Metadata and tensors have methods of their own.
    pub fn section(&mut self, kind: SectionKind, bytes: &[u8]) -> Result<()> {
        use SectionKind::{Metadata, TensorData, TensorTable};
        if matches!(kind, Metadata | TensorTable | TensorData) {
            return Err(Error::argument("kind", format!("the section {} is written by finish", kind.name())));
        }
        if kind == SectionKind::Template && std::str::from_utf8(bytes).is_err() {
            return Err(Error::argument("template", "not UTF-8"));
        }
        let required = if kind == SectionKind::Tokenizer { REQUIRED } else { 0 };
        self.guarded(|writer| {
            writer.close_tensors()?;
            writer.add_section(kind, required, bytes)
        })
    }

    /// Writes metadata, tables and header, and returns the complete output.
    pub fn finish(mut self, metadata: &Metadata) -> Result<W> {
        let bytes = metadata.encode();
        // Readers limit the size, the number of values and the depth.
        Metadata::parse(&bytes)
            .map_err(|error| Error::argument("metadata", format!("cannot be read back: {error}")))?;
        self.guarded(|writer| {
            writer.close_tensors()?;
            writer.add_section(SectionKind::Metadata, REQUIRED, &bytes)?;
            writer.finish_header()
        })?;
        Ok(self.out)
    }

    fn finish_header(&mut self) -> Result<()> {
        let header = CONTAINER.encode(&self.sections, self.position);
        let io = |error| Error::io("header", &error);
        self.out.seek(SeekFrom::Start(0)).map_err(io)?;
        self.out.write_all(&header).map_err(io)?;
        self.out.flush().map_err(io)
    }

    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.failed {
            return Err(Error::new(
                ErrorKind::State,
                "writer",
                "an earlier call failed; write the file again",
            ));
        }
        self.failed = true;
        work(self)?;
        self.failed = false;
        Ok(())
    }

    fn close_tensors(&mut self) -> Result<()> {
        if !self.sections.is_empty() {
            return Ok(());
        }
        let number = SectionKind::TensorData as u32;
        let length = self.position - TENSOR_ALIGNMENT;
        let hash = data_hash(self.records.iter().map(|record| &record.hash));
        self.sections.push(Section { number, flags: REQUIRED, offset: TENSOR_ALIGNMENT, length, hash });
        let table = table::encode(&self.records);
        self.add_section(SectionKind::TensorTable, REQUIRED, &table)
    }

    fn add_section(&mut self, kind: SectionKind, flags: u32, bytes: &[u8]) -> Result<()> {
        let number = kind as u32;
        let twice = self.sections.iter().any(|section| section.number == number);
        if (twice && kind != SectionKind::Adapter) || self.sections.len() == MAX_SECTIONS {
            return Err(Error::argument(kind.name(), "exists already, or there are too many sections"));
        }
        self.pad(SECTION_ALIGNMENT)?;
        let (offset, length, hash) = (self.position, bytes.len() as u64, *blake3::hash(bytes).as_bytes());
        self.out.write_all(bytes).map_err(|error| Error::io(kind.name(), &error))?;
        self.position += length;
        self.sections.push(Section { number, flags, offset, length, hash });
        Ok(())
    }

    fn pad(&mut self, alignment: u64) -> Result<()> {
        self.zeros(self.position.next_multiple_of(alignment) - self.position)
    }

    fn zeros(&mut self, count: u64) -> Result<()> {
        // On the stack: a constant would be a part of the library.
        let zeros = [0; PADDING_BYTES];
        let mut left = count as usize;
        while left > 0 {
            let zeros = &zeros[..left.min(zeros.len())];
            self.out.write_all(zeros).map_err(|error| Error::io("padding", &error))?;
            left -= zeros.len();
        }
        self.position += count;
        Ok(())
    }
}

impl File {
    /// Appends a section that readers may ignore if they do not know it to a copy of the file. `out` has the bytes of the file.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the file has such a section already.
    pub fn append_section<W: Write + Seek + Send>(
        &self,
        out: W,
        kind: SectionKind,
        bytes: &[u8],
    ) -> Result<W> {
        let position = self.bytes().len() as u64;
        let mut writer =
            FileWriter { out, position, records: Vec::new(), sections: self.sections.clone(), failed: false };
        writer.out.seek(SeekFrom::End(0)).map_err(|error| Error::io(kind.name(), &error))?;
        writer.add_section(kind, 0, bytes)?;
        writer.finish_header()?;
        Ok(writer.out)
    }
}

/// Returns the hash of the tensor data section: over the hashes of the tensors, in table order.
pub(super) fn data_hash<'a>(hashes: impl Iterator<Item = &'a Hash>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for hash in hashes {
        hasher.update(hash);
    }
    *hasher.finalize().as_bytes()
}
