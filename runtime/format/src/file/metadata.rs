//! The metadata section: a JSON object that describes the model and its provenance.

use super::json;
use crate::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

const MAX_BYTES: usize = 16 << 20;
const MAX_VALUES: usize = 1 << 20;
/// Fields of earlier versions that have another name now; every file of those versions has them.
const RENAMED: [&str; 2] = ["licence", "quantisation"];

fn fits(bytes: &[u8]) -> bool {
    bytes.len() <= MAX_BYTES && json::values(bytes) <= MAX_VALUES
}

/// A description of the model and its provenance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// The name of the family that runs it; `siskin_graph::arch::Family::named` finds it.
    pub architecture: String,
    /// The hyperparameters, as `siskin_graph::arch::ConfigReader` reads them.
    pub config: Map<String, Value>,
    /// The model's own name, if the source had one.
    pub name: Option<String>,
    /// The license, if the source named one.
    pub license: Option<String>,
    /// Source format, files, sizes and the version of the converter.
    pub provenance: Map<String, Value>,
    /// The number of tensors per type, and the quality report if there is one.
    pub quantization: Map<String, Value>,
}

impl Metadata {
    /// Parses the section. Unknown keys are ignored.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let location = |field: &str| format!("metadata.{field}");
        if !fits(bytes) {
            return Err(Error::corrupt("metadata", "the object is too large"));
        }
        let Value::Object(mut object) = json::parse_json(bytes, "metadata", MAX_VALUES)? else {
            return Err(Error::corrupt("metadata", "not a JSON object"));
        };
        if let Some(field) = RENAMED.into_iter().find(|field| object.contains_key(*field)) {
            let message = "field of an earlier version of the format; pack the model again";
            return Err(Error::new(ErrorKind::Version, location(field), message));
        }
        let mut text = |field: &str| match object.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Error::corrupt(location(field), "not a string")),
        };
        let (architecture, name, license) = (text("architecture")?, text("name")?, text("license")?);
        let mut map = |field: &str| match object.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(Error::corrupt(location(field), "not an object")),
        };
        let missing = |field: &str| Error::new(ErrorKind::Missing, location(field), "missing");
        Ok(Self {
            architecture: architecture.ok_or_else(|| missing("architecture"))?,
            config: map("config")?.ok_or_else(|| missing("config"))?,
            name,
            license,
            provenance: map("provenance")?.unwrap_or_default(),
            quantization: map("quantization")?.unwrap_or_default(),
        })
    }

    /// Encodes the section.
    pub(super) fn encode(&self) -> Vec<u8> {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::String);
        let object: Map<String, Value> = [
            ("architecture", Value::String(self.architecture.clone())),
            ("config", Value::Object(self.config.clone())),
            ("license", text(&self.license)),
            ("name", text(&self.name)),
            ("provenance", Value::Object(self.provenance.clone())),
            ("quantization", Value::Object(self.quantization.clone())),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
        Value::Object(object).to_string().into_bytes()
    }
}
