//! The keys of RoPE parameters in a configuration: `rope_parameters`, `rope_scaling`, `rope.scaling.*`.

use super::ConfigReader;
use siskin_format::{Error, Result};

/// The source of the scaling parameters.
pub(super) struct RopeConfig<'a> {
    pub(super) config: &'a ConfigReader,
    /// The object with the scaling parameters in a Hugging Face configuration.
    pub(super) object: &'static str,
}

impl RopeConfig<'_> {
    pub(super) fn number(&self, hugging_face: &str, gguf: &str) -> Result<Option<f64>> {
        self.config.number(&[&format!("{}/{hugging_face}", self.object), gguf])
    }

    pub(super) fn required(&self, hugging_face: &str, gguf: &str) -> Result<f64> {
        self.number(hugging_face, gguf)?.filter(|&number| number > 0.0).ok_or_else(|| {
            Error::corrupt(format!("config.{}.{hugging_face}", self.object), "missing or not positive")
        })
    }
}

/// Returns the object in which this configuration stores the RoPE parameters of a kind of layers.
pub(super) fn object_of(config: &ConfigReader, kind: &str) -> &'static str {
    let nested = |name: &str| config.get(&format!("rope_parameters/{name}")).is_some();
    match kind {
        "sliding_attention" if nested(kind) => "rope_parameters/sliding_attention",
        "full_attention" if nested(kind) => "rope_parameters/full_attention",
        _ if config.get("rope_parameters").is_some() => "rope_parameters",
        _ => "rope_scaling",
    }
}

/// Returns the context of a model that was trained for `context` tokens: dynamic scaling extends it by its factor.
pub(super) fn scaled_context(config: &ConfigReader, context: usize) -> Result<usize> {
    let parameters = RopeConfig { config, object: object_of(config, "full_attention") };
    let name = config
        .word(&[&format!("{}/rope_type", parameters.object), &format!("{}/type", parameters.object)])?;
    if name != Some("dynamic") {
        return Ok(context);
    }
    Ok((context as f64 * parameters.required("factor", "rope.scaling.factor")?) as usize)
}
