//! One GGUF file.

use super::cursor::GgufCursor;
use super::types::{block_of, type_name};
use super::value::GgufValue;
use siskin_format::file::Bytes;
use siskin_format::{Error, ErrorKind, Result};
use std::collections::HashSet;

const MAGIC: &[u8] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 24;
const MAX_DIMENSIONS: usize = 8;
const MAX_NAME_BYTES: usize = 4096;

/// A tensor's name, shape and bytes.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// The shape, fastest-varying dimension first, as GGUF stores it.
    pub dims: Vec<u64>,
    /// GGUF's id of the element type; see [`type_name`].
    pub ggml_type: u32,
    /// The elements, as stored in the file.
    pub data: Bytes,
}

/// One file's metadata and tensors.
#[derive(Clone, Debug)]
pub struct GgufPart {
    /// The format version: 2 or 3.
    pub version: u32,
    /// Keys and values in file order.
    pub metadata: Vec<(String, GgufValue)>,
    /// The tensors in file order.
    pub tensors: Vec<TensorInfo>,
}

struct Entry {
    name: String,
    dims: Vec<u64>,
    ggml_type: u32,
    offset: u64,
    length: u64,
}

impl GgufPart {
    /// Parses a whole file. Total on any bytes.
    pub fn parse(bytes: &Bytes) -> Result<Self> {
        let FileHead { version, metadata, entries, alignment, data_start } =
            read_head(&mut GgufCursor::new(bytes))?;
        let tensors = place_tensors(bytes, entries, alignment, data_start)?;
        Ok(Self { version, metadata, tensors })
    }

    /// Returns how many of a file's bytes hold all that precedes the data of tensors, and the data of those that are
    /// `included`; `None` if `start`, the first bytes of the file, ends before the data.
    pub(crate) fn head_bytes(start: &Bytes, included: &dyn Fn(&str) -> bool) -> Result<Option<u64>> {
        let mut cursor = GgufCursor::new(start);
        let head = match read_head(&mut cursor) {
            Err(_) if cursor.ran_out => return Ok(None),
            head => head?,
        };
        let included = head.entries.iter().filter(|entry| included(&entry.name));
        let ends =
            included.map(|entry| head.data_start.saturating_add(entry.offset).saturating_add(entry.length));
        Ok(Some(ends.max().unwrap_or(0).max(head.data_start)))
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// All that precedes the data of tensors.
struct FileHead {
    version: u32,
    metadata: Vec<(String, GgufValue)>,
    entries: Vec<Entry>,
    alignment: u64,
    data_start: u64,
}

fn read_head(cursor: &mut GgufCursor<'_>) -> Result<FileHead> {
    let version = read_version(cursor)?;
    let tensor_count = cursor.u64("header.tensor_count")?;
    let pair_count = cursor.count(13, "header.metadata_count")?;
    let metadata = read_metadata(cursor, pair_count)?;
    let tensor_count = cursor.bounded(tensor_count, 24, "header.tensor_count")?;
    let entries = read_entries(cursor, tensor_count)?;
    let alignment = read_alignment(&metadata)?;
    let data_start = (cursor.offset as u64).next_multiple_of(alignment);
    Ok(FileHead { version, metadata, entries, alignment, data_start })
}

fn read_version(cursor: &mut GgufCursor<'_>) -> Result<u32> {
    if cursor.take(4, "header.magic")? != MAGIC {
        return Err(Error::corrupt("header.magic", "not a GGUF file"));
    }
    let version = cursor.u32("header.version")?;
    match version {
        2 | 3 => Ok(version),
        1 => Err(Error::unsupported("header.version", "GGUF version 1 is obsolete; convert the model again")),
        _ if matches!(version.swap_bytes(), 1..=3) => Err(Error::unsupported(
            "header.version",
            "big-endian GGUF files are not supported; convert the model for a little-endian machine",
        )),
        _ => Err(Error::new(
            ErrorKind::Version,
            "header.version",
            format!("unknown GGUF version {version}; versions 2 and 3 are supported"),
        )),
    }
}

fn read_metadata(cursor: &mut GgufCursor<'_>, count: usize) -> Result<Vec<(String, GgufValue)>> {
    let mut metadata: Vec<(String, GgufValue)> = Vec::new();
    let mut seen = HashSet::new();
    for index in 0..count {
        let key = cursor.text(&format!("metadata[{index}].key"))?;
        if key.len() > MAX_NAME_BYTES {
            return Err(Error::corrupt(format!("metadata[{index}].key"), "the key is too long"));
        }
        if !seen.insert(key) {
            return Err(Error::corrupt(format!("metadata.{key}"), "the key occurs twice"));
        }
        let location = format!("metadata.{key}");
        let kind = cursor.u32(&location)?;
        metadata.push((key.to_owned(), GgufValue::read(cursor, kind, 0, &location)?));
    }
    Ok(metadata)
}

fn read_alignment(metadata: &[(String, GgufValue)]) -> Result<u64> {
    const KEY: &str = "general.alignment";
    let Some((_, value)) = metadata.iter().find(|(key, _)| key == KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    value
        .as_unsigned()
        .filter(|alignment| alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(alignment))
        .ok_or_else(|| Error::corrupt(KEY, "must be a power of two from 8 to 16777216"))
}

fn read_entries(cursor: &mut GgufCursor<'_>, count: usize) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    for index in 0..count {
        let name = cursor.text(&format!("tensors[{index}].name"))?;
        if name.len() > MAX_NAME_BYTES {
            return Err(Error::corrupt(format!("tensors[{index}].name"), "the name is too long"));
        }
        let location = format!("tensors.{name}");
        if !seen.insert(name) {
            return Err(Error::corrupt(location, "the tensor occurs twice"));
        }
        let rank = cursor.u32(&location)? as usize;
        if rank > MAX_DIMENSIONS {
            return Err(Error::corrupt(
                location,
                format!("{rank} dimensions; at most {MAX_DIMENSIONS} are allowed"),
            ));
        }
        let dims = (0..rank).map(|_| cursor.u64(&location)).collect::<Result<Vec<_>>>()?;
        let ggml_type = cursor.u32(&location)?;
        let offset = cursor.u64(&location)?;
        let length = byte_length(&dims, ggml_type, &location)?;
        entries.push(Entry { name: name.to_owned(), dims, ggml_type, offset, length });
    }
    Ok(entries)
}

fn byte_length(dims: &[u64], ggml_type: u32, location: &str) -> Result<u64> {
    let (elements, bytes) = block_of(ggml_type)
        .ok_or_else(|| Error::unsupported(location, format!("unknown tensor type {ggml_type}")))?;
    let row = dims.first().copied().unwrap_or(1);
    if row % elements != 0 {
        let name = type_name(ggml_type).unwrap_or_default();
        return Err(Error::corrupt(
            location,
            format!("rows of {row} are not whole blocks of {elements} ({name})"),
        ));
    }
    dims.iter()
        .skip(1)
        .try_fold(row / elements, |total, &size| total.checked_mul(size))
        .and_then(|blocks| blocks.checked_mul(bytes))
        .ok_or_else(|| Error::corrupt(location, "the shape is too large"))
}

fn place_tensors(
    bytes: &Bytes,
    entries: Vec<Entry>,
    alignment: u64,
    data_start: u64,
) -> Result<Vec<TensorInfo>> {
    let mut taken: Vec<(u64, u64, usize)> = Vec::new();
    let mut tensors = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let location = format!("tensors.{}", entry.name);
        if entry.offset % alignment != 0 {
            return Err(Error::corrupt(
                location,
                format!("the offset {} is not aligned to {alignment}", entry.offset),
            ));
        }
        let range = data_start.checked_add(entry.offset).and_then(|start| {
            let end = start.checked_add(entry.length)?;
            Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        });
        let data = range.clone().and_then(|range| bytes.slice(range)).ok_or_else(|| {
            Error::corrupt(
                location,
                format!(
                    "needs {} bytes at offset {} of the data, beyond the end of the file; is it complete?",
                    entry.length, entry.offset
                ),
            )
        })?;
        if entry.length > 0 {
            taken.push((entry.offset, entry.offset + entry.length, index));
        }
        tensors.push(TensorInfo { name: entry.name, dims: entry.dims, ggml_type: entry.ggml_type, data });
    }
    taken.sort_unstable();
    for pair in taken.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Err(Error::corrupt(
                format!("tensors.{}", tensors[pair[1].2].name),
                format!("overlaps the bytes of {}", tensors[pair[0].2].name),
            ));
        }
    }
    Ok(tensors)
}
