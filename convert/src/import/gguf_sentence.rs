//! Embedding settings of a GGUF file: pooling and the dense layers after it.

use super::gguf::{Gguf, TensorInfo};
use super::gguf_tensor::floats;
use super::sentence_transformers::MAX_NUMBERS;
use serde_json::{Map, Value, json};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::Pooling;
use siskin_graph::arch::DESCRIPTORS;

/// llama.cpp's pooling types. 0 is none; 4 (rank) is for classification heads, which are detected by their tensors.
const WAYS: &[(u64, Pooling)] = &[(1, Pooling::Mean), (2, Pooling::First), (3, Pooling::Last)];
/// The dense layers after pooling, in order; the first two module indices are the model and the pooling.
const LAYERS: &[&str] = &["dense_2", "dense_3"];
/// The Hugging Face key for bidirectional attention; GGUF has no such key.
pub(crate) const BIDIRECTIONAL: &str = "use_bidirectional_attention";

/// Adds the embedding settings to a configuration.
pub(super) fn describe(gguf: &Gguf, architecture: &str, config: &mut Map<String, Value>) -> Result<()> {
    // Files of these architectures do not state that attention is bidirectional.
    if DESCRIPTORS.iter().any(|descriptor| descriptor.gguf.keys.bidirectional == Some(architecture)) {
        config.insert(BIDIRECTIONAL.to_owned(), true.into());
    }
    let location = format!("{architecture}.pooling_type");
    let way = match gguf.unsigned(&location)? {
        None | Some(0 | 4) => return Ok(()),
        Some(number) => WAYS
            .iter()
            .find(|(known, _)| *known == number)
            .map(|(_, way)| *way)
            .ok_or_else(|| Error::unsupported(&location, format!("unknown pooling type {number}")))?,
    };
    let name = Pooling::NAMES.iter().find(|(known, _)| *known == way).map(|(_, name)| *name);
    let mut settings = Map::new();
    settings.insert("pooling".to_owned(), name.into());
    settings.insert("normalize".to_owned(), true.into());
    let dense = dense(gguf, architecture)?;
    if !dense.is_empty() {
        settings.insert("dense".to_owned(), dense.into());
    }
    config.insert("sentence_transformers".to_owned(), settings.into());
    Ok(())
}

/// Returns the settings of each dense layer after pooling, or an error if the widths of adjacent layers do not match.
fn dense(gguf: &Gguf, architecture: &str) -> Result<Vec<Value>> {
    let mut columns = gguf.unsigned(&format!("{architecture}.embedding_length"))?;
    let mut settings = Vec::new();
    for layer in layers(gguf) {
        let layer = layer?;
        let (inputs, outputs) = layer.sizes()?;
        if let Some(columns) = columns.filter(|columns| *columns != inputs) {
            let message = format!("takes vectors of {inputs} values, but they have {columns}");
            return Err(Error::new(ErrorKind::Shape, location(layer.weight), message));
        }
        columns = Some(outputs);
        settings.push(json!({"inputs": inputs, "outputs": outputs, "activation": "identity"}));
    }
    Ok(settings)
}

/// Returns the weights of the dense layers after pooling that a configuration has, under their names in `.siskin`
/// files.
pub(super) fn numbers(gguf: &Gguf, settings: Option<&Value>) -> Result<Vec<(String, Vec<f32>)>> {
    if settings.is_none_or(|settings| settings.get("dense").is_none()) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for (index, layer) in layers(gguf).enumerate() {
        let layer = layer?;
        layer.sizes()?;
        all.push((format!("sentence.{index}.weight"), floats(layer.weight)?));
        if let Some(bias) = layer.bias {
            all.push((format!("sentence.{index}.bias"), floats(bias)?));
        }
    }
    Ok(all)
}

/// A dense layer after pooling.
struct Layer<'a> {
    weight: &'a TensorInfo,
    bias: Option<&'a TensorInfo>,
}

/// Iterates over the layers in the file: their presence is the only setting.
fn layers(gguf: &Gguf) -> impl Iterator<Item = Result<Layer<'_>>> {
    LAYERS.iter().filter_map(|name| {
        let tensor = |kind: &str| gguf.tensor(&format!("{name}.{kind}"));
        match (tensor("weight"), tensor("bias")) {
            (Some(weight), bias) => Some(Ok(Layer { weight, bias })),
            (None, Some(bias)) => {
                let message = "a bias without a matrix; convert the model again";
                Some(Err(Error::new(ErrorKind::Missing, location(bias), message)))
            }
            (None, None) => None,
        }
    })
}

impl Layer<'_> {
    /// Returns the numbers of inputs and outputs, limited so that a vector and the matrix fit in memory.
    fn sizes(&self) -> Result<(u64, u64)> {
        let wrong = |tensor: &TensorInfo, message: &str| {
            Err(Error::new(ErrorKind::Shape, location(tensor), format!("{message}; convert the model again")))
        };
        let &[inputs, outputs] = &self.weight.dims[..] else { return wrong(self.weight, "not a matrix") };
        let numbers = inputs.checked_mul(outputs);
        if numbers.is_none_or(|numbers| !(1..=MAX_NUMBERS).contains(&numbers)) {
            return wrong(
                self.weight,
                &format!("expected 1 to {MAX_NUMBERS} values, got {inputs} x {outputs}"),
            );
        }
        match self.bias {
            Some(bias) if bias.dims != [outputs] => wrong(bias, &format!("not a vector of {outputs} values")),
            _ => Ok((inputs, outputs)),
        }
    }
}

fn location(tensor: &TensorInfo) -> String {
    format!("tensors.{}", tensor.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::gguf::GgufValue;
    use siskin_format::file::Bytes;

    const WIDTH: u64 = 2;

    /// Builds an F32 tensor. `numbers` may be fewer than `dims` require.
    fn tensor(name: &str, dims: &[u64], numbers: &[f32]) -> TensorInfo {
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        TensorInfo { name: name.to_owned(), dims: dims.to_vec(), ggml_type: 0, data: Bytes::new(data) }
    }

    fn file(pooling: u64, tensors: Vec<TensorInfo>) -> Gguf {
        let number = |key: &str, value| (format!("bert.{key}"), GgufValue::Unsigned(value));
        Gguf { metadata: vec![number("pooling_type", pooling), number("embedding_length", WIDTH)], tensors }
    }

    fn read(gguf: &Gguf) -> Result<Vec<(String, Vec<f32>)>> {
        let mut config = Map::new();
        describe(gguf, "bert", &mut config)?;
        numbers(gguf, config.get("sentence_transformers"))
    }

    #[test]
    fn layers_stand_for_themselves() {
        let (first, bias) =
            (tensor("dense_2.weight", &[2, 1], &[1.0, 2.0]), tensor("dense_2.bias", &[1], &[3.0]));
        let second = tensor("dense_3.weight", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let of = |list: &[(&str, &[f32])]| -> Vec<(String, Vec<f32>)> {
            list.iter().map(|(name, numbers)| ((*name).to_owned(), numbers.to_vec())).collect()
        };
        assert_eq!(
            read(&file(1, vec![first.clone(), bias])).unwrap(),
            of(&[("sentence.0.weight", &[1.0, 2.0]), ("sentence.0.bias", &[3.0])])
        );
        assert_eq!(
            read(&file(1, vec![second])).unwrap(),
            of(&[("sentence.0.weight", &[1.0, 2.0, 3.0, 4.0])])
        );
        assert_eq!(read(&file(0, vec![first])).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_a_layer_is_rejected_by_its_name() {
        let weight = |dims: &[u64]| vec![tensor("dense_2.weight", dims, &[1.0; 6])];
        let first = tensor("dense_2.weight", &[2, 3], &[1.0; 6]);
        let cases = [
            ("dense_2.weight", ErrorKind::Shape, weight(&[3, 2])),
            ("dense_2.weight", ErrorKind::Shape, weight(&[6])),
            ("dense_2.weight", ErrorKind::Shape, weight(&[2, 0])),
            ("dense_2.weight", ErrorKind::Shape, weight(&[2, 1 << 28])),
            ("dense_2.weight", ErrorKind::Shape, weight(&[2, 1 << 63])),
            (
                "dense_3.weight",
                ErrorKind::Shape,
                vec![first.clone(), tensor("dense_3.weight", &[2, 1], &[1.0; 2])],
            ),
            ("dense_2.bias", ErrorKind::Shape, vec![first, tensor("dense_2.bias", &[2], &[1.0; 2])]),
            ("dense_2.bias", ErrorKind::Missing, vec![tensor("dense_2.bias", &[2], &[1.0; 2])]),
            ("dense_2.weight", ErrorKind::Corrupt, vec![tensor("dense_2.weight", &[2, 1], &[1.0, f32::NAN])]),
        ];
        for (name, kind, tensors) in cases {
            let error = read(&file(1, tensors)).unwrap_err();
            assert_eq!(
                (error.kind(), error.location()),
                (kind, format!("tensors.{name}").as_str()),
                "{error}"
            );
        }
    }
}
