//! The `.siskin` container: writing, mapping and total parsing. `docs/format.md` specifies every byte.
//!
//! Opening maps the file and validates header, section table, metadata, template and tensor table, hashes included;
//! tensors and tokenizer are views into the map whose hashes [`File::verify`] checks.

mod atomic;
mod bytes;
mod json;
mod layout;
mod map;
mod metadata;
mod no_follow;
mod table;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use atomic::AtomicFile;
pub use bytes::Bytes;
pub use json::parse_json;
pub use layout::{MAGIC, MAJOR, MINOR, SectionKind, TENSOR_ALIGNMENT};
pub use metadata::Metadata;
pub use no_follow::{append_no_follow, is_private, open_no_follow, reject_link};
pub use table::{StorageRole, TensorSpec};
pub use write::{FileWriter, TensorSink};

use crate::container::{HEADER_BYTES, Hash, Section};
use crate::{Error, ErrorKind, Result};
use siskin_kernels::panel::PanelType;
use std::collections::HashMap;
use std::path::Path;

/// An open model file. Cloning does not copy weights.
#[derive(Clone, Debug)]
pub struct File {
    bytes: Bytes,
    sections: Vec<Section>,
    metadata: Metadata,
    template: Option<String>,
    tensors: Vec<Tensor>,
    hashes: Vec<Hash>,
    names: HashMap<String, usize>,
}

/// A tensor of a file: its shape and its bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Packed matrix or f32 vector.
    pub role: StorageRole,
    /// The panel type of a matrix.
    pub panel: PanelType,
    /// Output rows; 1 for a vector.
    pub rows: usize,
    /// Input columns, or the length of a vector.
    pub columns: usize,
    /// The panels, or the vector's little-endian f32 values.
    pub data: Bytes,
    offset: usize,
}

/// A section of a file: its kind and location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionInfo {
    /// The kind; `None` if this version does not know it.
    pub kind: Option<SectionKind>,
    /// The number of the kind.
    pub number: u32,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

impl Tensor {
    /// Creates a matrix that exists in memory only.
    pub fn in_memory(name: &str, panel: PanelType, [rows, columns]: [usize; 2], data: Bytes) -> Self {
        Self { name: name.to_owned(), role: StorageRole::Matrix, panel, rows, columns, data, offset: 0 }
    }

    /// Returns the offset of the first byte in the file.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the values of a vector; empty for a matrix.
    pub fn floats(&self) -> Vec<f32> {
        match self.role {
            StorageRole::Matrix => Vec::new(),
            StorageRole::Vector => {
                self.data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
            }
        }
    }
}

impl File {
    /// Maps and opens the file at `path`.
    ///
    /// While the result or anything derived from it is alive, the file must not be written or truncated: the weights
    /// are the file's own pages, and accessing a page that is gone kills the process (SIGBUS on Unix). Replacing the
    /// file by renaming another over it, as [`AtomicFile`] does, is safe.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let location = path.as_ref().display().to_string();
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io(&location, &error))?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a folder, not a file" } else { "not a regular file" };
            return Err(Error::unsupported(location, format!("{what}; expected a .siskin file")));
        }
        let file = std::fs::File::open(path).map_err(|error| Error::io(&location, &error))?;
        Self::open_descriptor(file, 0, None).map_err(|error| error.within(&location))
    }

    /// Maps and opens a model that is `length` bytes (or everything up to the end) of an open file from `offset` on,
    /// such as an uncompressed asset of an Android package. The requirement of [`File::open`] applies here too.
    ///
    /// Any offset works; with a multiple of 16 KiB, the tensors keep their alignment in memory.
    pub fn open_descriptor(file: impl Into<std::fs::File>, offset: u64, length: Option<u64>) -> Result<Self> {
        let file = file.into();
        let size = file.metadata().map_err(|error| Error::io("descriptor", &error))?.len();
        let rest = size.checked_sub(offset).ok_or_else(|| {
            Error::argument("offset", format!("{offset} is beyond the file's {size} bytes"))
        })?;
        let length = length.unwrap_or(rest);
        if length > rest {
            return Err(Error::argument("length", format!("{length} bytes requested, {rest} available")));
        }
        let length = usize::try_from(length).map_err(|_| {
            Error::new(ErrorKind::Memory, "length", "exceeds the address space of this machine")
        })?;
        if length == 0 {
            return Err(Error::corrupt("header.magic", "the file is empty"));
        }
        Self::parse(map::map(&file, offset, length, "map")?)
    }

    /// Opens a model that is already in memory, without copying it.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        Self::parse(Bytes::new(bytes))
    }

    fn parse(bytes: Bytes) -> Result<Self> {
        let sections = layout::CONTAINER.sections(&bytes)?;
        let find = |kind| sections.iter().find(|section: &&Section| section.kind() == Some(kind));
        let need = |kind: SectionKind| {
            find(kind)
                .ok_or_else(|| Error::new(ErrorKind::Missing, kind.name(), "the file has no such section"))
        };
        let metadata = Metadata::parse(checked(&bytes, need(SectionKind::Metadata)?)?)?;
        let template = match find(SectionKind::Template) {
            None => None,
            Some(section) => Some(
                std::str::from_utf8(checked(&bytes, section)?)
                    .map_err(|error| Error::corrupt("template", format!("not UTF-8: {error}")))?
                    .to_owned(),
            ),
        };
        let data = need(SectionKind::TensorData)?;
        let table = checked(&bytes, need(SectionKind::TensorTable)?)?;
        let records = table::parse(table, data.offset..data.offset + data.length)?;
        let hashes = records.iter().map(|record| record.hash).collect();
        let tensors = records.into_iter().map(|record| tensor(&bytes, record)).collect::<Result<Vec<_>>>()?;
        let names = tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
        Ok(Self { bytes, sections, metadata, template, tensors, hashes, names })
    }

    /// Returns the description of the model and its provenance.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns every section, in the order of the section table.
    pub fn sections(&self) -> impl Iterator<Item = SectionInfo> {
        self.sections.iter().map(|section| SectionInfo {
            kind: section.kind(),
            number: section.number,
            offset: section.offset,
            length: section.length,
        })
    }

    /// Returns the bytes of a section, if the file has it.
    pub fn section(&self, kind: SectionKind) -> Option<Bytes> {
        let section = self.sections.iter().find(|section| section.kind() == Some(kind))?;
        self.bytes.slice(section.range())
    }

    /// Returns the bytes of a section after verifying them against the section's hash.
    pub fn checked_section(&self, kind: SectionKind) -> Result<Option<Bytes>> {
        let section = self.sections.iter().find(|section| section.kind() == Some(kind));
        section.map(|section| checked(&self.bytes, section).map(|_| section)).transpose()?;
        Ok(self.section(kind))
    }

    /// Returns the tokenizer's bytes, if the file has one.
    pub fn tokenizer(&self) -> Option<Bytes> {
        self.section(SectionKind::Tokenizer)
    }

    /// Returns the chat template, if the file has one.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    /// Returns the tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(*self.names.get(name)?)
    }

    /// Returns every tensor, in file order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the whole file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns a hash of the family and the tensors: of what a model computes with, whatever the source of its file.
    /// Reads not the tensors but their stored hashes.
    pub fn digest(&self) -> [u8; 32] {
        let mut order: Vec<(&Tensor, &Hash)> = self.tensors.iter().zip(&self.hashes).collect();
        order.sort_unstable_by_key(|(tensor, _)| &tensor.name);
        let mut hasher = blake3::Hasher::new();
        let text = |hasher: &mut blake3::Hasher, text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        text(&mut hasher, &self.metadata.architecture);
        for (tensor, hash) in order {
            text(&mut hasher, &tensor.name);
            let shape = [u64::from(tensor.panel.id()), tensor.rows as u64, tensor.columns as u64];
            shape.iter().for_each(|number| {
                hasher.update(&number.to_le_bytes());
            });
            hasher.update(&[u8::from(tensor.role == StorageRole::Vector)]).update(hash);
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns the hash of the header and section table, which covers all other hashes: it identifies the file.
    pub fn identity(&self) -> [u8; 32] {
        let mut identity = [0; 32];
        identity.copy_from_slice(&self.bytes[HEADER_BYTES - 32..HEADER_BYTES]);
        identity
    }
}

/// Returns the bytes of a section, verified against its hash.
fn checked<'a>(bytes: &'a Bytes, section: &Section) -> Result<&'a [u8]> {
    let found = bytes.get(section.range()).unwrap_or_default();
    match *blake3::hash(found).as_bytes() == section.hash {
        true => Ok(found),
        false => Err(verify::differs(&section.name())),
    }
}

fn tensor(bytes: &Bytes, record: table::TensorRecord) -> Result<Tensor> {
    let TensorSpec { name, role, panel, rows, columns } = record.spec;
    let offset = record.offset as usize;
    let data = bytes.slice(offset..offset + record.length as usize);
    let location = || format!("tensor table: {name}");
    let fits = |number: u64| usize::try_from(number).ok();
    match (data, fits(rows), fits(columns)) {
        (Some(data), Some(rows), Some(columns)) => {
            Ok(Tensor { role, panel, rows, columns, data, offset, name })
        }
        _ => Err(Error::corrupt(location(), "exceeds the address space of this machine")),
    }
}
