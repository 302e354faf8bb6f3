//! What a GGUF file says of how texts become vectors: pooling, and layers behind it.

use super::gguf::{Gguf, TensorInfo};
use super::gguf_source::floats;
use serde_json::{Map, Value, json};
use siskin::encoder::Pooling;
use siskin::{Error, ErrorKind, Result};

/// What llama.cpp's numbers mean. 0 is none; 4 is for scores, which the head for classes gives.
const WAYS: &[(u64, Pooling)] = &[(1, Pooling::Mean), (2, Pooling::First), (3, Pooling::Last)];
/// The layers behind pooling, in their order; the first two places are those of the model and of pooling.
const LAYERS: &[&str] = &["dense_2", "dense_3"];
/// Architectures whose tokens see those behind them, which their files do not say.
const BOTH_WAYS: &[&str] = &["gemma-embedding"];

/// Adds to a configuration what it needs for vectors.
pub(super) fn describe(gguf: &Gguf, architecture: &str, config: &mut Map<String, Value>) -> Result<()> {
    if BOTH_WAYS.contains(&architecture) {
        config.insert("attention.causal".to_owned(), false.into());
    }
    let place = format!("{architecture}.pooling_type");
    let way = match gguf.unsigned(&place)? {
        None | Some(0 | 4) => return Ok(()),
        Some(number) => {
            WAYS.iter().find(|(known, _)| *known == number).map(|(_, way)| *way).ok_or_else(|| {
                Error::unsupported(&place, format!("{number} is no way of pooling that is known"))
            })?
        }
    };
    let name = Pooling::NAMES.iter().find(|(known, _)| *known == way).map(|(_, name)| *name);
    let dense: Vec<Value> = layers(gguf)
        .map(|layer| {
            let (inputs, outputs) = sizes(layer)?;
            Ok(json!({"inputs": inputs, "outputs": outputs, "activation": "identity"}))
        })
        .collect::<Result<_>>()?;
    let mut settings = Map::new();
    settings.insert("pooling".to_owned(), name.into());
    settings.insert("normalise".to_owned(), true.into());
    if !dense.is_empty() {
        settings.insert("dense".to_owned(), dense.into());
    }
    config.insert("sentence_transformers".to_owned(), settings.into());
    Ok(())
}

/// The numbers of the layers behind pooling, by the names that our files have for them.
pub(super) fn numbers(gguf: &Gguf) -> Result<Vec<(String, Vec<f32>)>> {
    let name = |index: usize| format!("sentence.{index}.weight");
    layers(gguf).enumerate().map(|(index, layer)| Ok((name(index), floats(layer)?))).collect()
}

fn layers(gguf: &Gguf) -> impl Iterator<Item = &TensorInfo> {
    LAYERS.iter().map_while(|name| gguf.tensor(&format!("{name}.weight")))
}

fn sizes(layer: &TensorInfo) -> Result<(u64, u64)> {
    match layer.dims[..] {
        [inputs, outputs] => Ok((inputs, outputs)),
        _ => {
            let place = format!("tensors.{}", layer.name);
            Err(Error::new(ErrorKind::Shape, place, "is no matrix"))
        }
    }
}
