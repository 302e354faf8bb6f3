//! A GGUF file as a source.

use super::gguf::{Gguf, GgufPart, GgufValue, TensorInfo};
use super::gguf_tensor::{floats, source_tensor};
use super::{ModelSource, SourceFormat, SourceTensor, gguf_sentence, names, tokenizer_gguf};
use serde_json::{Map, Number, Value};
use siskin_format::file::Bytes;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::{ConfigReader, Family, FamilyDescriptor, TensorTransform};
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

pub(super) static FORMAT: SourceFormat = SourceFormat {
    name: "GGUF",
    detect,
    files,
    open: |path| {
        Ok(Box::new(GgufSource::new(Gguf::open(path)?).map_err(|error| error.within(&location(path)))?))
    },
};

/// Longer arrays are vocabularies, not hyperparameters.
const MAX_ARRAY_LENGTH: usize = 4096;
/// Half of the limit of metadata values, which leaves room for other metadata.
const MAX_VALUES: usize = 1 << 19;
/// Tensors that hold hyperparameters, and the keys under which families read them.
pub(crate) const FACTORS: &[(&str, &str)] = &[
    ("rope_freqs.weight", "rope.factors"),
    ("rope_factors_long.weight", "rope.long_factor"),
    ("rope_factors_short.weight", "rope.short_factor"),
];

/// Returns true if it takes more than the first bytes of a GGUF file to open it without the data of its weights. False for
/// bytes that are not the start of one.
pub fn needs_longer_head(head: &[u8]) -> bool {
    let is_factor = |name: &str| FACTORS.iter().any(|(tensor, _)| *tensor == name);
    match GgufPart::head_bytes(&Bytes::new(head.to_vec()), &is_factor) {
        Ok(needed) => needed.is_none_or(|needed| needed > head.len() as u64),
        Err(_) => false,
    }
}

fn location(path: &Path) -> String {
    path.display().to_string()
}

fn detect(path: &Path) -> bool {
    let mut magic = [0; 4];
    path.is_file()
        && std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && &magic == b"GGUF"
}

/// Returns the file, and its siblings if it is named like the first part of a split model.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let split = || {
        let (stem, count) = path.file_name()?.to_str()?.strip_suffix(".gguf")?.rsplit_once("-00001-of-")?;
        let count: u32 = count.parse().ok().filter(|&count| count <= 10_000)?;
        Some(
            (1..=count)
                .map(|part| path.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf")))
                .collect(),
        )
    };
    Ok(split().unwrap_or_else(|| vec![path.to_owned()]))
}

struct GgufSource {
    gguf: Gguf,
    tensors: HashMap<String, usize>,
    descriptor: &'static FamilyDescriptor,
    config: ConfigReader,
}

impl GgufSource {
    fn new(gguf: Gguf) -> Result<Self> {
        let architecture = gguf
            .string("general.architecture")?
            .ok_or_else(|| Error::new(ErrorKind::Missing, "general.architecture", "missing from the file"))?;
        let descriptor = FamilyDescriptor::of_gguf(architecture)?;
        let config = ConfigReader::new(config(&gguf, architecture)?);
        let tensors =
            gguf.tensors.iter().enumerate().map(|(index, tensor)| (tensor.name.clone(), index)).collect();
        Ok(Self { gguf, tensors, descriptor, config })
    }

    fn info(&self, name: &str) -> Option<(&TensorInfo, TensorTransform)> {
        let (source, take) = names::apply(self.descriptor.gguf.rules, name)
            .unwrap_or_else(|| (name.to_owned(), TensorTransform::Whole));
        let index = self.tensors.get(&source).or_else(|| self.tensors.get(name))?;
        let info = self.gguf.tensors.get(*index)?;
        let is_there = match take {
            // The last dimension counts the stacked tensors.
            TensorTransform::Chunk(chunk) => info.dims.last().is_some_and(|&count| u64::from(chunk) < count),
            _ => true,
        };
        is_there.then_some((info, take))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.gguf.string(key).ok().flatten().filter(|text| !text.is_empty())
    }
}

impl ModelSource for GgufSource {
    fn family(&self) -> &'static Family {
        self.descriptor.family
    }

    fn config(&self) -> &ConfigReader {
        &self.config
    }

    fn has(&self, name: &str) -> bool {
        self.info(name).is_some()
    }

    fn tensor(&self, name: &str) -> Result<SourceTensor> {
        let (info, take) =
            self.info(name).ok_or_else(|| Error::new(ErrorKind::Missing, name, "missing from the file"))?;
        source_tensor(info, take)
    }

    fn tokenizer(&self) -> Result<Option<Vec<u8>>> {
        match self.text("tokenizer.ggml.model") {
            None | Some("none" | "no_vocab") => Ok(None),
            Some(_) => tokenizer_gguf::vocabulary(&self.gguf)?.write().map(Some),
        }
    }

    fn template(&self) -> Option<&str> {
        self.text("tokenizer.chat_template")
    }

    fn name(&self) -> Option<&str> {
        self.text("general.name")
    }

    fn license(&self) -> Option<&str> {
        self.text("general.license")
    }

    fn lists(&self) -> Result<Vec<(String, Vec<f32>)>> {
        gguf_sentence::numbers(&self.gguf, self.config.get("sentence_transformers"))
    }

    fn provenance(&self) -> Map<String, Value> {
        let keys = [
            "general.architecture",
            "general.organization",
            "general.basename",
            "general.finetune",
            "general.version",
            "general.size_label",
            "general.source.url",
            "general.license.link",
            "tokenizer.ggml.pre",
        ];
        let texts = keys.iter().filter_map(|&key| Some((key.to_owned(), Value::from(self.text(key)?))));
        texts.collect()
    }
}

fn config(gguf: &Gguf, architecture: &str) -> Result<Map<String, Value>> {
    let prefix = format!("{architecture}.");
    let ours = || gguf.metadata.iter().filter(|(key, _)| key.starts_with(&prefix));
    if ours().map(|(_, value)| 1 + length(value)).sum::<usize>() > MAX_VALUES {
        return Err(Error::corrupt(prefix, format!("more than {MAX_VALUES} values")));
    }
    let mut config: Map<String, Value> = gguf
        .metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), json(value)?)))
        .collect();
    if let Some(rows) = gguf.tensor("token_embd.weight").and_then(|table| table.dims.get(1)) {
        config.insert("vocab_size".to_owned(), Value::from(*rows));
    }
    if let Some(token_types) = gguf.unsigned("tokenizer.ggml.token_type_count")? {
        config.insert("token_type_count".to_owned(), Value::from(token_types));
    }
    if let Some(Value::Array(labels)) = config.remove("classifier.output_labels") {
        let labels = labels.into_iter().enumerate().map(|(class, label)| (class.to_string(), label));
        config.insert("id2label".to_owned(), Value::Object(labels.collect()));
    }
    gguf_sentence::describe(gguf, architecture, &mut config)?;
    for (name, key) in FACTORS {
        if let Some(info) = gguf.tensor(name) {
            config.insert((*key).to_owned(), factors(info)?);
        }
    }
    Ok(config)
}

/// Returns the number of JSON values that this value becomes.
fn length(value: &GgufValue) -> usize {
    match value {
        GgufValue::Strings(strings) if strings.len() <= MAX_ARRAY_LENGTH => strings.len(),
        GgufValue::Numbers(numbers) if numbers.len() <= MAX_ARRAY_LENGTH => numbers.len(),
        _ => 0,
    }
}

/// Returns a scalar or short array as JSON, or `None` for values that JSON or a configuration cannot hold.
fn json(value: &GgufValue) -> Option<Value> {
    let number = |number: f64| Number::from_f64(number).map(Value::Number);
    match value {
        GgufValue::Unsigned(value) => Some(Value::from(*value)),
        GgufValue::Signed(value) => Some(Value::from(*value)),
        GgufValue::Float32(value) => number(f64::from(*value)),
        GgufValue::Float64(value) => number(*value),
        GgufValue::Bool(value) => Some(Value::from(*value)),
        GgufValue::Text(text) => Some(Value::from(text.as_str())),
        GgufValue::Strings(strings) if strings.len() <= MAX_ARRAY_LENGTH => {
            strings.iter().map(|text| std::str::from_utf8(text).ok().map(Value::from)).collect()
        }
        GgufValue::Numbers(numbers) if numbers.len() <= MAX_ARRAY_LENGTH => {
            if let Some(list) = value.as_signed_array() {
                return Some(Value::from(list));
            }
            match value.as_float_array() {
                Some(list) => list.into_iter().map(|value| number(f64::from(value))).collect(),
                // The remaining type is booleans, one byte each.
                None => Some(numbers.bytes().iter().map(|&byte| Value::from(byte != 0)).collect()),
            }
        }
        _ => None,
    }
}

/// Returns a vector of f32 values that the file stores as a tensor.
fn factors(info: &TensorInfo) -> Result<Value> {
    let location = || format!("tensors.{}", info.name);
    let is_list = info.dims.iter().skip(1).all(|&rows| rows == 1);
    if !is_list || info.dims.first().is_some_and(|&numbers| numbers > MAX_ARRAY_LENGTH as u64) {
        return Err(Error::corrupt(location(), format!("not a list of at most {MAX_ARRAY_LENGTH} numbers")));
    }
    Ok(floats(info)?.into_iter().map(|value| Value::from(f64::from(value))).collect())
}
