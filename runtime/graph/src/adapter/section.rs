//! The file format of an adapter: a JSON section describes the parts, one tensor holds all their values.

use std::collections::HashSet;
use std::io::{Seek, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Adapter, LoraMatrix};
use siskin_format::file::{File, FileWriter, Metadata, SectionKind, StorageRole, TensorSpec, parse_json};
use siskin_format::{Error, ErrorKind, Result};

/// The maximum number of JSON values.
const MAX_VALUES: usize = 1 << 20;
/// The version of the section.
const VERSION: u32 = 1;

/// The JSON section.
#[derive(Serialize, Deserialize)]
struct Whole {
    version: u32,
    /// The digest of the base model in hexadecimal.
    base: Option<String>,
    parts: Vec<Part>,
}

/// A part without its values.
#[derive(Serialize, Deserialize)]
struct Part {
    tensor: String,
    rows: usize,
    columns: usize,
    rank: usize,
    factor: f32,
    lengths: bool,
}

/// The tensor with the values of all parts: one instead of many small ones, each of which would start on a new page.
const TENSOR: &str = "adapter";

/// Parses the section `bytes` of `file`.
pub(super) fn read(bytes: &[u8], file: &File) -> Result<Adapter> {
    // Check the version first: other versions may have other fields.
    let value: Value = parse_json(bytes, "adapter", MAX_VALUES)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            let message = format!("unknown version {version}, expected {VERSION}; update Siskin");
            return Err(Error::new(ErrorKind::Version, "adapter.version", message));
        }
        None => return Err(Error::corrupt("adapter.version", "missing or not a number")),
    }
    let whole: Whole = serde_json::from_value(value)
        .map_err(|error| Error::corrupt("adapter", format!("wrong type or unknown field: {error}")))?;
    let mut tensors = HashSet::new();
    let numbers = numbers(file)?;
    let mut rest = &numbers[..];
    let mut parts = Vec::with_capacity(whole.parts.len());
    for Part { tensor, rows, columns, rank, factor, lengths } in whole.parts {
        if !tensors.insert(tensor.clone()) {
            return Err(Error::corrupt(format!("adapter of {tensor}"), "occurs twice"));
        }
        let mut take = |rows: usize, columns: usize| -> Result<Vec<f32>> {
            let count = rows.checked_mul(columns).filter(|&count| count <= rest.len()).ok_or_else(|| {
                let message = format!("expected {rows} × {columns} values, but only {} are left", rest.len());
                Error::new(ErrorKind::Shape, format!("adapter of {tensor}"), message)
            })?;
            let (taken, after) = rest.split_at(count);
            rest = after;
            Ok(taken.to_vec())
        };
        let (a, b) = (take(rank, columns)?, take(rows, rank)?);
        let magnitudes = if lengths { take(1, rows)? } else { Vec::new() };
        let part = LoraMatrix { tensor, rows, columns, rank, scale: factor, a, b, magnitudes };
        part.check()?;
        parts.push(part);
    }
    if parts.is_empty() {
        return Err(Error::corrupt("adapter.parts", "the list is empty; an adapter must change a matrix"));
    }
    if !rest.is_empty() {
        let message = format!("{} values do not belong to any matrix", rest.len());
        return Err(Error::new(ErrorKind::Shape, format!("tensor {TENSOR}"), message));
    }
    let base = whole.base.as_deref().map(digest).transpose()?;
    Ok(Adapter { architecture: file.metadata().architecture.clone(), base, parts })
}

/// Reads the values of all parts.
fn numbers(file: &File) -> Result<Vec<f32>> {
    let place = format!("tensor {TENSOR}");
    let missing = "missing from the file; copy or train the adapter again";
    let tensor = file.tensor(TENSOR).ok_or_else(|| Error::new(ErrorKind::Missing, &place, missing))?;
    match tensor.role {
        StorageRole::Vector => Ok(tensor.floats()),
        StorageRole::Matrix => {
            Err(Error::new(ErrorKind::Shape, &place, "expected a vector, found a packed matrix"))
        }
    }
}

fn digest(text: &str) -> Result<[u8; 32]> {
    let wrong = || Error::corrupt("adapter.base", "not a digest of 64 hexadecimal digits");
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
    }
    Ok(digest)
}

fn hexadecimal(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the adapter as a file.
pub(super) fn write<W: Write + Seek + Send>(
    adapter: &Adapter,
    name: Option<&str>,
    provenance: Map<String, Value>,
    out: W,
) -> Result<W> {
    let mut writer = FileWriter::new(out)?;
    let numbers = |part: &LoraMatrix| part.a.len() + part.b.len() + part.magnitudes.len();
    let count: usize = adapter.parts.iter().map(numbers).sum();
    writer.tensor(&TensorSpec::vector(TENSOR, count as u64), |sink| {
        let lists = adapter.parts.iter().flat_map(|part| [&part.a, &part.b, &part.magnitudes]);
        lists.into_iter().try_for_each(|numbers| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            sink.write(&bytes)
        })
    })?;
    let part = |part: &LoraMatrix| Part {
        tensor: part.tensor.clone(),
        rows: part.rows,
        columns: part.columns,
        rank: part.rank,
        factor: part.scale,
        lengths: !part.magnitudes.is_empty(),
    };
    let parts = adapter.parts.iter().map(part).collect();
    let whole = Whole { version: VERSION, base: adapter.base.as_ref().map(hexadecimal), parts };
    let section = serde_json::to_vec(&whole)
        .map_err(|error| Error::argument("adapter", format!("cannot be written: {error}")))?;
    writer.section(SectionKind::Adapter, &section)?;
    writer.finish(&Metadata {
        architecture: adapter.architecture.clone(),
        name: name.map(str::to_owned),
        provenance,
        ..Metadata::default()
    })
}
