//! The tensor table: one record per tensor.

use super::layout::TENSOR_ALIGNMENT;
use crate::container::{FieldReader, Hash};
use crate::{Error, Result};
use siskin_kernels::panel::PanelType;
use std::collections::HashSet;

const RECORD_BYTES: usize = 72;
const RECORD_ALIGNMENT: usize = 8;
const MAX_NAME_BYTES: usize = 512;
const MATRIX: u8 = 0;
const VECTOR: u8 = 1;

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageRole {
    /// A matrix in packed panels: rows are outputs (or table entries), columns are inputs.
    Matrix,
    /// f32 values, one row.
    Vector,
}

/// The name, type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Packed matrix or f32 vector.
    pub role: StorageRole,
    /// The panel type of a matrix; [`PanelType::F32`] for a vector.
    pub panel: PanelType,
    /// Output rows; 1 for a vector.
    pub rows: u64,
    /// Input columns, or the length of a vector.
    pub columns: u64,
}

impl TensorSpec {
    /// Describes a matrix of packed panels.
    pub fn matrix(name: impl Into<String>, panel: PanelType, rows: u64, columns: u64) -> Self {
        Self { name: name.into(), role: StorageRole::Matrix, panel, rows, columns }
    }

    /// Describes a vector of f32 values.
    pub fn vector(name: impl Into<String>, columns: u64) -> Self {
        Self { name: name.into(), role: StorageRole::Vector, panel: PanelType::F32, rows: 1, columns }
    }

    /// Returns the bytes of the tensor; `None` if they overflow, or if a vector has more than one row.
    pub fn bytes(&self) -> Option<u64> {
        if self.rows == 0 || self.columns == 0 {
            return None;
        }
        match self.role {
            StorageRole::Matrix => {
                let (rows, columns) = (usize::try_from(self.rows).ok()?, usize::try_from(self.columns).ok()?);
                self.panel.tensor_bytes(rows, columns).map(|bytes| bytes as u64)
            }
            StorageRole::Vector if self.rows == 1 && self.panel == PanelType::F32 => {
                self.columns.checked_mul(4)
            }
            StorageRole::Vector => None,
        }
    }
}

/// A record of the table.
#[derive(Clone, Debug)]
pub(super) struct TensorRecord {
    pub(super) spec: TensorSpec,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) hash: Hash,
}

/// Parses the table; `data` is the range of the tensor data section in the file.
///
/// The returned records are inside `data`, aligned, in order of offset, as long as their shapes require, and have
/// distinct names.
pub(super) fn parse(bytes: &[u8], data: std::ops::Range<u64>) -> Result<Vec<TensorRecord>> {
    let mut fields = FieldReader { rest: bytes, location: "tensor table" };
    let count = fields.u32("count")? as usize;
    fields.take(4, "reserved")?;
    if count > fields.rest.len() / RECORD_BYTES {
        return Err(fields.corrupt("count", format!("{count} tensors do not fit in the section")));
    }
    let mut names = HashSet::with_capacity(count);
    let mut records: Vec<TensorRecord> = Vec::with_capacity(count);
    let mut end = data.start;
    for index in 0..count {
        let record = record(&mut fields, index)?;
        let location = |field: &str| format!("tensor table: {}.{field}", record.spec.name);
        if !names.insert(record.spec.name.clone()) {
            return Err(Error::corrupt(location("name"), "occurs twice"));
        }
        if record.spec.bytes() != Some(record.length) {
            let TensorSpec { rows, columns, .. } = record.spec;
            let message = format!("{} bytes do not match {rows} x {columns} of this type", record.length);
            return Err(Error::corrupt(location("length"), message));
        }
        if !record.offset.is_multiple_of(TENSOR_ALIGNMENT) {
            return Err(Error::corrupt(location("offset"), format!("not a multiple of {TENSOR_ALIGNMENT}")));
        }
        if record.offset < end {
            return Err(Error::corrupt(
                location("offset"),
                "overlaps the previous tensor or the section's start",
            ));
        }
        end = record
            .offset
            .checked_add(record.length)
            .filter(|&end| end <= data.end)
            .ok_or_else(|| Error::corrupt(location("length"), "extends past the tensor data section"))?;
        records.push(record);
    }
    if !fields.rest.is_empty() {
        return Err(fields.corrupt("count", "trailing bytes after the last tensor"));
    }
    Ok(records)
}

fn record(fields: &mut FieldReader<'_>, index: usize) -> Result<TensorRecord> {
    let field = |name: &str| format!("tensor[{index}].{name}");
    let name_length = fields.u16(&field("name length"))? as usize;
    let [role, _reserved] = fields.array(&field("role"))?;
    let panel = fields.u16(&field("panel type"))?;
    fields.take(2, &field("reserved"))?;
    let rows = fields.u64(&field("rows"))?;
    let columns = fields.u64(&field("columns"))?;
    let offset = fields.u64(&field("offset"))?;
    let length = fields.u64(&field("length"))?;
    let hash = fields.array(&field("hash"))?;
    if name_length == 0 || name_length > MAX_NAME_BYTES {
        return Err(fields.corrupt(&field("name length"), format!("must be 1 to {MAX_NAME_BYTES}")));
    }
    let name = fields.take(name_length.next_multiple_of(RECORD_ALIGNMENT), &field("name"))?;
    let name = std::str::from_utf8(&name[..name_length])
        .map_err(|error| fields.corrupt(&field("name"), format!("not UTF-8: {error}")))?;
    let role = match role {
        MATRIX => StorageRole::Matrix,
        VECTOR => StorageRole::Vector,
        other => {
            return Err(Error::unsupported(
                format!("tensor table: {name}.role"),
                format!("unknown role {other}; update Siskin"),
            ));
        }
    };
    let panel = PanelType::from_id(panel).ok_or_else(|| {
        let location = format!("tensor table: {name}.panel type");
        Error::unsupported(location, format!("panel type {panel} is unknown; update Siskin"))
    })?;
    Ok(TensorRecord {
        spec: TensorSpec { name: name.to_owned(), role, panel, rows, columns },
        offset,
        length,
        hash,
    })
}

/// Checks that the reserved bytes are zero in a table that [`parse`] accepted.
pub(super) fn check_reserved(bytes: &[u8]) -> Result<()> {
    let is_zero = |range: std::ops::Range<usize>| {
        bytes.get(range).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
    };
    let wrong = |field: &str| Error::corrupt(format!("tensor table.{field}"), "not zero");
    if !is_zero(4..8) {
        return Err(wrong("reserved"));
    }
    let (mut at, mut index) = (8, 0);
    while let Some(&length) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let name = at + RECORD_BYTES + usize::from(u16::from_le_bytes(length));
        let end = name.next_multiple_of(RECORD_ALIGNMENT);
        if !is_zero(at + 3..at + 4) || !is_zero(at + 6..at + 8) || !is_zero(name..end) {
            return Err(wrong(&format!("tensor[{index}].reserved")));
        }
        (at, index) = (end, index + 1);
    }
    Ok(())
}

/// Validates a tensor before it is written.
pub(super) fn check(spec: &TensorSpec) -> Result<u64> {
    if spec.name.is_empty() || spec.name.len() > MAX_NAME_BYTES {
        return Err(Error::argument("tensor.name", format!("must have 1 to {MAX_NAME_BYTES} bytes")));
    }
    spec.bytes().ok_or_else(|| {
        let TensorSpec { name, rows, columns, .. } = spec;
        Error::argument(
            format!("tensor {name}"),
            format!("{rows} x {columns} is not a valid shape for this role and type"),
        )
    })
}

pub(super) fn encode(records: &[TensorRecord]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + records.len() * (RECORD_BYTES + 32));
    out.extend((records.len() as u32).to_le_bytes());
    out.extend([0; 4]);
    for TensorRecord { spec, offset, length, hash } in records {
        out.extend((spec.name.len() as u16).to_le_bytes());
        out.extend(match spec.role {
            StorageRole::Matrix => [MATRIX, 0],
            StorageRole::Vector => [VECTOR, 0],
        });
        out.extend(spec.panel.id().to_le_bytes());
        out.extend([0; 2]);
        for number in [spec.rows, spec.columns, *offset, *length] {
            out.extend(number.to_le_bytes());
        }
        out.extend(hash);
        out.extend(spec.name.as_bytes());
        out.resize(out.len().next_multiple_of(RECORD_ALIGNMENT), 0);
    }
    out
}
