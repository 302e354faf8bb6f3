//! An adapter in a file: a section of JSON says what there is, tensors hold the numbers.

use std::collections::HashSet;
use std::io::{Seek, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Adapter, AdapterPart};
use crate::file::{File, Metadata, Role, SectionKind, TensorSpec, Writer, parse_json};
use crate::{Error, ErrorKind, Result};

/// Values of the JSON.
const MOST_VALUES: usize = 1 << 20;
/// The version of the section.
const VERSION: u32 = 1;

/// The section.
#[derive(Serialize, Deserialize)]
struct Whole {
    version: u32,
    /// The digest of the base, as hexadecimal digits.
    base: Option<String>,
    parts: Vec<Part>,
}

/// A part without its numbers.
#[derive(Serialize, Deserialize)]
struct Part {
    tensor: String,
    rows: usize,
    columns: usize,
    rank: usize,
    factor: f32,
    lengths: bool,
}

/// The names of a part's tensors.
fn names(tensor: &str) -> [String; 3] {
    ["a", "b", "length"].map(|part| format!("{tensor}.adapter_{part}"))
}

/// Reads the section `bytes` of `file`.
pub(super) fn read(bytes: &[u8], file: &File) -> Result<Adapter> {
    // The version comes first: another one may have other fields.
    let value: Value = parse_json(bytes, "adapter", MOST_VALUES)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            let message = format!("version {version} is unknown, {VERSION} is read; update Siskin");
            return Err(Error::new(ErrorKind::Version, "adapter.version", message));
        }
        None => return Err(Error::corrupt("adapter.version", "is missing or no number")),
    }
    let whole: Whole = serde_json::from_value(value)
        .map_err(|error| Error::corrupt("adapter", format!("is not what is wanted here: {error}")))?;
    let mut known = HashSet::new();
    let mut parts = Vec::with_capacity(whole.parts.len());
    for Part { tensor, rows, columns, rank, factor, lengths } in whole.parts {
        if !known.insert(tensor.clone()) {
            return Err(Error::corrupt(format!("adapter of {tensor}"), "occurs twice"));
        }
        let [first, second, length] = names(&tensor);
        let part = AdapterPart {
            rows,
            columns,
            rank,
            factor,
            first: numbers(file, &first)?,
            second: numbers(file, &second)?,
            lengths: if lengths { numbers(file, &length)? } else { Vec::new() },
            tensor,
        };
        // Lengths that are said to be there are: a tensor has at least one number.
        part.check()?;
        parts.push(part);
    }
    if parts.is_empty() {
        return Err(Error::corrupt("adapter.parts", "names no matrix"));
    }
    let base = whole.base.as_deref().map(digest).transpose()?;
    Ok(Adapter { architecture: file.metadata().architecture.clone(), base, parts })
}

/// The numbers of a tensor, which is a list of them.
fn numbers(file: &File, name: &str) -> Result<Vec<f32>> {
    let place = || format!("tensor {name}");
    let tensor = file.tensor(name).ok_or_else(|| {
        Error::new(ErrorKind::Missing, place(), "the adapter names it, and the file does not hold it")
    })?;
    match tensor.role {
        Role::Vector => Ok(tensor.floats()),
        Role::Matrix => Err(Error::new(ErrorKind::Shape, place(), "is packed; a list of numbers is wanted")),
    }
}

fn digest(text: &str) -> Result<[u8; 32]> {
    let wrong = || Error::corrupt("adapter.base", "is no digest of 64 hexadecimal digits");
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

/// Writes a file of the adapter.
pub(super) fn write<W: Write + Seek + Send>(
    adapter: &Adapter,
    name: Option<&str>,
    provenance: Map<String, Value>,
    out: W,
) -> Result<W> {
    let mut writer = Writer::new(out)?;
    for part in &adapter.parts {
        let tensors = names(&part.tensor).into_iter().zip([&part.first, &part.second, &part.lengths]);
        for (name, numbers) in tensors.filter(|(_, numbers)| !numbers.is_empty()) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let spec = TensorSpec::vector(name, numbers.len() as u64);
            writer.tensor(&spec, |sink| sink.write(&bytes))?;
        }
    }
    let part = |part: &AdapterPart| Part {
        tensor: part.tensor.clone(),
        rows: part.rows,
        columns: part.columns,
        rank: part.rank,
        factor: part.factor,
        lengths: !part.lengths.is_empty(),
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
