//! What a written file says of the computation, beside what the model computes.

use super::keys::FACTORS;
use super::value::Value;
use super::{Extra, FOREIGN};
use crate::export::model::Model;
use serde_json::{Map, Value as Json};
use siskin::arch::{Config, Family, Graphs};
use siskin::graph::{Graph, Op, Rope, Sight};
use siskin::{Error, Result};

/// How far apart frequencies are that went through 32 bits.
const CLOSE: f32 = 1e-5;

/// Refuses a model of which the keys say something else than what it computes: hyper-parameters that llama.cpp has no
/// key for.
pub(super) fn check(
    model: &Model<'_>,
    architecture: &str,
    metadata: &[(String, Value)],
    extras: &[Extra],
    notes: &[String],
) -> Result<()> {
    // Its head stays behind where it is an encoder.
    let stays = |name: &str| {
        model.graphs.decoder.is_some()
            || name != "output.weight" && !FOREIGN.iter().any(|part| name.starts_with(part))
    };
    let has = |name: &str| stays(name) && model.file.tensor(name).is_some();
    let (_, own) = model.family.build(&model.config, &has)?;
    let config = config(model, architecture, metadata, extras);
    let (_, read) = Family::of_gguf(architecture)?
        .build(&config, &has)
        .map_err(|error| Error::unsupported("gguf", format!("the file could not be read again: {error}")))?;
    match difference(own, read, notes) {
        None => Ok(()),
        Some((own, read)) => {
            let message = format!(
                "llama.cpp has no key for a part of what the model computes: {own} would become {read}; export safetensors \
                 or ONNX"
            );
            Err(Error::unsupported("gguf", message))
        }
    }
}

/// The hyper-parameters as they are read from the file.
fn config(model: &Model<'_>, architecture: &str, metadata: &[(String, Value)], extras: &[Extra]) -> Config {
    let prefix = format!("{architecture}.");
    let ours = metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), json(value)?)));
    let mut config: Map<String, Json> = ours.collect();
    config.insert("vocab_size".to_owned(), model.hyper.vocabulary.into());
    config.insert("token_type_count".to_owned(), model.hyper.segments.into());
    if let Some(sentence) = model.config.get("sentence_transformers") {
        config.insert("sentence_transformers".to_owned(), sentence.clone());
    }
    for extra in extras {
        if let Some((_, key)) = FACTORS.iter().find(|(name, _)| *name == extra.name) {
            config.insert((*key).to_owned(), extra.numbers.iter().map(|&number| f64::from(number)).collect());
        }
    }
    Config::new(config)
}

fn json(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Unsigned(number) => (*number).into(),
        Value::Float(number) => f64::from(*number).into(),
        Value::Bool(truth) => (*truth).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Ints(list) => list.as_slice().into(),
        Value::Bools(list) => list.as_slice().into(),
        Value::Floats(list) => list.iter().map(|&number| f64::from(number)).collect(),
        Value::Texts(_) | Value::Bytes(_) => return None,
    })
}

/// The first thing that differs, as both have it. What `notes` tell of already is let pass.
fn difference(own: Graphs, read: Graphs, notes: &[String]) -> Option<(String, String)> {
    let told = |word: &str| notes.iter().any(|note| note.contains(word));
    let (windows, scales) = (told("window"), told("scale of attention"));
    let texts = |graph: &Graph| -> Vec<String> {
        let nodes = graph.nodes.iter().map(|node| match &node.op {
            Op::Attention(attention) => {
                let mut attention = attention.clone();
                if windows && let Sight::Before(window) = &mut attention.sight {
                    *window = None;
                }
                if scales {
                    attention.scale = 1.0;
                }
                format!("{attention:?}")
            }
            op => format!("{op:?}"),
        });
        nodes.collect()
    };
    for (own, read) in [(own.encoder, read.encoder), (own.decoder, read.decoder)] {
        let (Some(own), Some(read)) = (&own, &read) else {
            match own.is_some() == read.is_some() {
                true => continue,
                false => {
                    return Some((
                        "a model that writes".to_owned(),
                        "one that reads, or the reverse".to_owned(),
                    ));
                }
            }
        };
        if own.nodes.len() != read.nodes.len() {
            let count = |graph: &Graph| format!("{} operations", graph.nodes.len());
            return Some((count(own), count(read)));
        }
        if let Some(pair) = texts(own).into_iter().zip(texts(read)).find(|(own, read)| own != read) {
            return Some(pair);
        }
        if let Some((own, read)) = own.ropes.iter().zip(&read.ropes).find(|(own, read)| !alike(own, read)) {
            let text = |rope: &Rope| {
                format!(
                    "rotary positions with factor {} and frequencies {:?} …",
                    rope.magnitude,
                    &rope.frequencies[..rope.frequencies.len().min(4)]
                )
            };
            return Some((text(own), text(read)));
        }
    }
    None
}

fn alike(own: &Rope, read: &Rope) -> bool {
    let close = |own: f32, read: f32| (own - read).abs() <= CLOSE * own.abs().max(read.abs());
    own.frequencies.len() == read.frequencies.len()
        && own.stretch.is_some() == read.stretch.is_some()
        && close(own.magnitude, read.magnitude)
        && own.frequencies.iter().zip(&read.frequencies).all(|(&own, &read)| close(own, read))
}
