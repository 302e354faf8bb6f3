//! Packed tokens as a source, to be merged or split again.

use std::path::Path;

use siskin_format::{Error, Result};

use super::{Body, DataFormat, Document, Documents, ReadOptions};
use crate::data::packed::PackedTokenFile;
use crate::data::records::Records;

/// Files of packed tokens: each record is a document.
#[derive(Clone, Copy, Debug)]
pub struct PackedTokens;

impl DataFormat for PackedTokens {
    fn name(&self) -> &'static str {
        "packed tokens"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tokens"]
    }

    fn read(&self, path: &Path, reading: &ReadOptions) -> Result<Documents> {
        let packed = open(path, reading)?;
        let place = path.display().to_string();
        Ok(Box::new((0..packed.count()).map(move |record| {
            let parts = (0..packed.parts()).map(|part| packed.list(record, part)).collect::<Result<_>>()?;
            let place = format!("{place}: record {record}");
            Ok(Document { body: Body::Tokens(parts), label: packed.label(record), place })
        })))
    }
}

/// Opens the records of a file, with classes only if they are needed.
pub(super) fn open(path: &Path, reading: &ReadOptions) -> Result<PackedTokenFile> {
    let packed = PackedTokenFile::open(path)?;
    let place = path.display().to_string();
    if reading.identity != 0 {
        packed.expect(reading.identity)?;
    }
    if packed.parts() != reading.fields.len() {
        let message = format!(
            "its records have {} token lists, the task needs {}; pack the texts again for this task",
            packed.parts(),
            reading.fields.len()
        );
        return Err(Error::argument(place, message));
    }
    if reading.label.is_none() {
        return Ok(packed.without_labels());
    }
    if packed.count() > 0 && packed.label(0).is_none() {
        let message = "no class; pack the texts again with classes";
        return Err(Error::argument(format!("{place}: record 0"), message));
    }
    let most = if reading.classes.is_empty() { u32::MAX } else { reading.classes.len() as u32 };
    let beyond = |record: &usize| packed.label(*record).is_some_and(|label| label >= most);
    if let Some(record) = (0..packed.count()).find(beyond) {
        let message = format!(
            "its class is out of range for the {most} classes of `data.class_names`; list all classes"
        );
        return Err(Error::argument(format!("{place}: record {record}"), message));
    }
    Ok(packed)
}
