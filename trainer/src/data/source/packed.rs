//! Packed tokens, to be put together or cut apart again.

use std::path::Path;

use siskin::{Error, Result};

use super::{Body, Document, Documents, Reading, Source};
use crate::data::packed::Packed;
use crate::data::records::Records;

/// Files of packed tokens: each record is a document.
#[derive(Clone, Copy, Debug)]
pub struct PackedTokens;

impl Source for PackedTokens {
    fn name(&self) -> &'static str {
        "packed tokens"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tokens"]
    }

    fn read(&self, path: &Path, reading: &Reading) -> Result<Documents> {
        let packed = Packed::open(path)?;
        let place = path.display().to_string();
        if reading.identity != 0 {
            packed.expect(reading.identity)?;
        }
        if packed.parts() != reading.fields.len() {
            let message = format!(
                "its records have {} lists of tokens, wanted are {}; pack the texts again for this task",
                packed.parts(),
                reading.fields.len()
            );
            return Err(Error::argument(place, message));
        }
        let labelled = reading.label.is_some();
        Ok(Box::new((0..packed.count()).map(move |record| {
            let place = format!("{place}: record {record}");
            let label = packed.label(record).filter(|_| labelled);
            if labelled && label.is_none() {
                return Err(Error::argument(place, "has no class; pack the texts again with their classes"));
            }
            let parts = (0..packed.parts()).map(|part| packed.list(record, part)).collect::<Result<_>>()?;
            Ok(Document { body: Body::Tokens(parts), label, place })
        })))
    }
}
