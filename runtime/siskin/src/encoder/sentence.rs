//! Sentence-transformers features besides the graph: prompts before texts, and dense layers after pooling.

use serde_json::Value;

use crate::model::Model;
use crate::{Error, ErrorKind, Result};
use siskin_format::file::StorageRole;
use siskin_graph::arch::ConfigReader;

/// The prompt before each text, one of those that the model was trained with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// The model's default prompt, if it has one.
    #[default]
    Default,
    /// No prompt.
    None,
    /// The prompt with this index, as returned by [`Prompt::named`].
    Index(usize),
}

impl Prompt {
    /// Returns the model's prompt with the given name.
    pub fn named(model: &Model, name: &str) -> Result<Self> {
        let prompts = prompts(&model.config_reader())?;
        prompts.iter().position(|(known, _)| known == name).map(Self::Index).ok_or_else(|| {
            let names: Vec<_> = prompts.iter().map(|(name, _)| name.as_str()).collect();
            let known = if names.is_empty() { "no prompts".to_owned() } else { names.join(", ") };
            Error::argument("prompt", format!("unknown prompt `{name}`; the model has {known}"))
        })
    }

    /// Returns the text of the prompt; empty if there is none.
    pub(super) fn text(self, config: &ConfigReader) -> Result<String> {
        let prompts = prompts(config)?;
        let found = match self {
            Self::None => return Ok(String::new()),
            Self::Index(number) => prompts.into_iter().nth(number),
            Self::Default => match config.word(&["sentence_transformers/default_prompt_name"])? {
                None => return Ok(String::new()),
                Some(name) => prompts.into_iter().find(|(known, _)| known == name),
            },
        };
        let (_, text) = found.ok_or_else(|| Error::argument("prompt", "the model has no such prompt"))?;
        if !text.is_empty() && config.flag(&["sentence_transformers/include_prompt"])? == Some(false) {
            let message =
                "the model excludes prompt tokens from pooling, which is not supported; use no prompt";
            return Err(Error::unsupported("prompt", message));
        }
        Ok(text)
    }
}

/// Returns the names and texts of the prompts.
fn prompts(config: &ConfigReader) -> Result<Vec<(String, String)>> {
    let place = "config.sentence_transformers.prompts";
    let Some(prompts) = config.get("sentence_transformers/prompts").filter(|prompts| !prompts.is_null())
    else {
        return Ok(Vec::new());
    };
    let prompts = prompts.as_object().ok_or_else(|| Error::corrupt(place, "not an object"))?;
    let text = |(name, text): (&String, &Value)| {
        let text = if text.is_null() { Some("") } else { text.as_str() };
        let text = text.ok_or_else(|| Error::corrupt(format!("{place}.{name}"), "not a string"))?;
        Ok((name.clone(), text.to_owned()))
    };
    prompts.iter().map(text).collect()
}

/// A dense layer after pooling.
pub(super) struct Dense {
    inputs: usize,
    pub(super) outputs: usize,
    /// Row-major, one row per output.
    weight: Vec<f32>,
    bias: Vec<f32>,
    activation: Activation,
}

#[derive(Clone, Copy)]
enum Activation {
    Identity,
    Tanh,
    Relu,
}

impl Dense {
    /// Returns the model's dense layers, of which the first takes `columns` inputs.
    pub(super) fn of(model: &Model, config: &ConfigReader, mut columns: usize) -> Result<Vec<Self>> {
        let place = "config.sentence_transformers.dense";
        let Some(stated) = config.get("sentence_transformers/dense") else { return Ok(Vec::new()) };
        let stated = stated.as_array().ok_or_else(|| Error::corrupt(place, "not a list"))?;
        let mut layers = Vec::new();
        for (index, layer) in stated.iter().enumerate() {
            let place = format!("{place}[{index}]");
            let size = |key: &str| {
                layer.get(key).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok())
            };
            let (Some(inputs), Some(outputs)) = (size("inputs"), size("outputs")) else {
                return Err(Error::corrupt(place, "missing sizes"));
            };
            let activation = match layer.get("activation").and_then(Value::as_str) {
                Some("identity") => Activation::Identity,
                Some("tanh") => Activation::Tanh,
                Some("relu") => Activation::Relu,
                Some(other) => {
                    return Err(Error::unsupported(place, format!("activation '{other}' is not supported")));
                }
                None => return Err(Error::unsupported(place, "missing activation; convert the model again")),
            };
            if inputs != columns || outputs == 0 {
                let message = format!("maps {inputs} columns to {outputs}, but its input has {columns}");
                return Err(Error::new(ErrorKind::Shape, place, message));
            }
            let numbers =
                |kind: &str, count: Option<usize>| numbers(model, &format!("sentence.{index}.{kind}"), count);
            let weight = numbers("weight", inputs.checked_mul(outputs))?.ok_or_else(|| {
                Error::new(ErrorKind::Missing, format!("sentence.{index}.weight"), "missing from the file")
            })?;
            let bias = numbers("bias", Some(outputs))?.unwrap_or_default();
            layers.push(Self { inputs, outputs, weight, bias, activation });
            columns = outputs;
        }
        Ok(layers)
    }

    /// Applies the layer to a vector.
    ///
    /// # Errors
    /// [`ErrorKind::Numeric`] if the result contains NaN or infinity.
    pub(super) fn apply(&self, vector: &[f32]) -> Result<Vec<f32>> {
        let output = |(index, row): (usize, &[f32])| {
            let products = row.iter().zip(vector).map(|(w, x)| f64::from(*w) * f64::from(*x));
            let sum = products.sum::<f64>() + self.bias.get(index).map_or(0.0, |bias| f64::from(*bias));
            match self.activation {
                Activation::Identity => sum as f32,
                Activation::Tanh => libm::tanh(sum) as f32,
                Activation::Relu if sum < 0.0 => 0.0,
                Activation::Relu => sum as f32,
            }
        };
        let outputs: Vec<f32> = self.weight.chunks(self.inputs).enumerate().map(output).collect();
        Error::unless_finite("vector", &outputs)?;
        Ok(outputs)
    }
}

/// Returns an f32 tensor of the file; `None` if there is none with this name.
fn numbers(model: &Model, name: &str, count: Option<usize>) -> Result<Option<Vec<f32>>> {
    let Some(tensor) = model.file().tensor(name) else { return Ok(None) };
    if tensor.role != StorageRole::Vector || Some(tensor.columns) != count {
        let expected = count.map_or_else(|| "a different number of".to_owned(), |count| count.to_string());
        let message = format!("expected {expected} values, got {}", tensor.columns);
        return Err(Error::new(ErrorKind::Shape, name, message));
    }
    Ok(Some(tensor.floats()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_an_error() {
        for activation in [Activation::Identity, Activation::Relu] {
            let layer = |weight: f32| Dense {
                inputs: 2,
                outputs: 1,
                weight: vec![weight; 2],
                bias: Vec::new(),
                activation,
            };
            assert_eq!(layer(1.0).apply(&[1.0, 2.0]).unwrap(), [3.0]);
            for (weight, vector) in [(f32::MAX, [1.0, 1.0]), (f32::NAN, [1.0, 1.0]), (1.0, [f32::NAN, 1.0])] {
                assert_eq!(layer(weight).apply(&vector).unwrap_err().kind(), ErrorKind::Numeric);
            }
        }
    }
}
