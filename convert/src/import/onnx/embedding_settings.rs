//! The embedding settings in our own ONNX exports.

use super::{OnnxModel, SETTINGS};
use crate::import::read::MAX_VALUES;
use serde_json::{Map, Value};
use siskin_format::file::parse_json;
use siskin_format::{Error, Result};

/// Adds the embedding settings of our own exports, unless the folder has them.
pub(super) fn add_embedding_settings(model: &OnnxModel<'_>, config: &mut Map<String, Value>) -> Result<()> {
    if model.settings.is_empty() || config.contains_key("sentence_transformers") {
        return Ok(());
    }
    let mut inside: Map<String, Value> = parse_json(model.settings.as_bytes(), SETTINGS, MAX_VALUES)?;
    let Some(settings) = inside.remove("sentence_transformers") else { return Ok(()) };
    if settings.get("dense").is_some() {
        let message = "the dense layers after pooling are not part of an ONNX model, and embeddings would \
                       differ without them: open the model that it was exported from";
        return Err(Error::unsupported(format!("{SETTINGS}.sentence_transformers.dense"), message));
    }
    config.insert("sentence_transformers".to_owned(), settings);
    Ok(())
}
