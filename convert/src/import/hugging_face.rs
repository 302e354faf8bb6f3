//! A Hugging Face folder as a source: `config.json` and safetensors, whole or sharded.

use super::map::map;
use super::read::{MAX_VALUES, read};
use super::safetensors::{self, SafetensorsTensor};
use super::{
    ModelSource, SourceFormat, SourceTensor, defaults, names, sentence_transformers, tokenizer_json,
};
use serde_json::{Map, Value};
use siskin_format::file::{Bytes, parse_json};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::{ConfigReader, Family, FamilyDescriptor, TensorTransform, Topology};
use siskin_kernels::quant::BlockType;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

pub(super) static FORMAT: SourceFormat = SourceFormat {
    name: "Hugging Face folder",
    detect: |path| path.join("config.json").is_file(),
    files,
    open: |path| {
        let location = path.display().to_string();
        Ok(Box::new(HuggingFace::open(path).map_err(|error| error.within(&location))?))
    },
};

/// Maximum number of values in a configuration: half of the limit of metadata, which leaves room for other metadata.
const MAX_CONFIG_VALUES: usize = 1 << 19;
/// Maximum number of values in a generation configuration: the longest lists are suppressed tokens.
const MAX_GENERATION_VALUES: usize = 1 << 16;
/// The LM head.
const HEAD: &str = "output.weight";
/// The segment embeddings.
const SEGMENTS: &str = "token_types.weight";
/// Tensors that may be tied to the token embeddings.
const TABLES: &[&str] = &[HEAD, "enc.token_embd.weight", "dec.token_embd.weight"];
/// Suffixes of classes with heads that are not supported on decoders.
const HEADS_OF_ENCODERS: &[&str] =
    &["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", CHOICE];
/// The class suffix whose head is not supported at all.
const CHOICE: &str = "ForMultipleChoice";
/// Extensions of files that can change the model.
const EXTENSIONS: &[&str] = &["json", "safetensors", "jinja", "model", "txt"];

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let io = |error: std::io::Error| Error::io(path.display().to_string(), &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(ending)) && file.is_file() {
            files.push(file);
        } else if is_module(&file) {
            files.extend(
                ["config.json", "model.safetensors"]
                    .map(|name| file.join(name))
                    .into_iter()
                    .filter(|file| file.is_file()),
            );
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns true if this is a module folder of sentence-transformers, such as `1_Pooling`.
fn is_module(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('_'));
    name.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A model with its tensors under Hugging Face names, and the files of the folder that describe it.
pub(super) struct HuggingFace {
    folder: PathBuf,
    descriptor: &'static FamilyDescriptor,
    config: ConfigReader,
    tensors: HashMap<String, SafetensorsTensor>,
    /// Maps names without wrapper prefixes to names in the files; `None` if ambiguous.
    bare: HashMap<String, Option<String>>,
    /// Tensors that are stored transposed.
    transposed: HashSet<String>,
    /// Weights that are copies of the token embeddings.
    repeated: Vec<&'static str>,
    template: Option<String>,
    name: Option<String>,
}

impl HuggingFace {
    fn open(folder: &Path) -> Result<Self> {
        let (descriptor, config) = describe(folder)?;
        let folder = Self::new(folder, descriptor, config, read_tensors(folder)?, HashSet::new())?;
        folder.check_whole()?;
        Ok(folder)
    }

    /// Rejects a source that lacks the segment embeddings that its configuration declares: the graph would silently run
    /// without them.
    pub(super) fn check_token_types(&self) -> Result<()> {
        let token_types = (self.descriptor.family.read_config)(&self.config)?.token_types;
        match names::apply(self.descriptor.hugging_face.rules, SEGMENTS) {
            Some((source, _)) if token_types > 0 && !self.has(SEGMENTS) => {
                let message = format!("no {source}, but config.type_vocab_size is {token_types}");
                Err(Error::new(ErrorKind::Missing, SEGMENTS, message))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a folder that lacks tensors which its configuration declares or its other layers have, and without which
    /// the graph would silently run.
    fn check_whole(&self) -> Result<()> {
        self.check_token_types()?;
        let (_, graphs) = self.descriptor.family.build(&self.config, &|name| self.has(name))?;
        let classes = self.config.architectures();
        let headless = |class: &&&str| {
            let endings = if graphs.decoder.is_some() { HEADS_OF_ENCODERS } else { &[CHOICE] };
            endings.iter().any(|ending| class.ends_with(ending))
        };
        if let Some(class) = classes.first()
            && classes.iter().all(|class| headless(&class))
        {
            let message = format!("the model is a {class}, whose head is not supported for this family");
            return Err(Error::unsupported("config.architectures", message));
        }
        let untied = self.config.flag(&["tie_word_embeddings"])? == Some(false);
        let writes_alone = graphs.decoder.is_some() && graphs.encoder.is_none();
        if writes_alone && untied && !self.has("output.weight") {
            let message = "the folder has no LM head, and config.tie_word_embeddings says that the token embeddings are \
                           not shared with it: the model cannot generate text";
            return Err(Error::new(ErrorKind::Missing, "output.weight", message));
        }
        let weights = graphs.weights();
        let mut biased: HashMap<String, (bool, &str)> = HashMap::new();
        for weight in &weights {
            let Some(stem) = weight.name.strip_suffix(".weight") else { continue };
            let Some(kind) = names::of_any_layer(stem) else { continue };
            let bias = format!("{stem}.bias");
            let has = self.has(&bias);
            let (known, other) = *biased.entry(kind).or_insert((has, stem));
            if known != has {
                let lacking = if has { other } else { stem };
                let message = "exists for other layers, but not for this one";
                return Err(Error::new(ErrorKind::Missing, format!("{lacking}.bias"), message));
            }
        }
        Ok(())
    }

    /// Builds a source from `tensors`, of which those in `transposed` are stored transposed.
    pub(super) fn new(
        folder: &Path,
        descriptor: &'static FamilyDescriptor,
        config: Map<String, Value>,
        tensors: HashMap<String, SafetensorsTensor>,
        transposed: HashSet<String>,
    ) -> Result<Self> {
        let tensors: HashMap<String, SafetensorsTensor> =
            tensors.into_iter().map(|(name, tensor)| (names::current(name), tensor)).collect();
        let mut bare: HashMap<String, Option<String>> = HashMap::new();
        for name in tensors.keys() {
            let known = bare.entry(names::bare(name).to_owned());
            known.and_modify(|known| *known = None).or_insert_with(|| Some(name.clone()));
        }
        let name = config.get("_name_or_path").and_then(Value::as_str).map(str::to_owned);
        let name = name.filter(|name| !name.is_empty());
        let template = read_template(folder)?;
        let folder = folder.to_owned();
        let config = ConfigReader::new(config);
        let repeated = Vec::new();
        let mut source =
            Self { folder, descriptor, config, tensors, bare, transposed, repeated, template, name };
        source.repeated = source.find_repeated()?;
        Ok(source)
    }

    /// Returns the stored tensors that are copies of the token embeddings. Transformers uses stored copies even if the
    /// configuration says that embeddings are tied.
    fn find_repeated(&self) -> Result<Vec<&'static str>> {
        let untied = self.config.flag(&["tie_word_embeddings"])? == Some(false);
        let of = |name: &str| self.look_up(name).map(|(_, tensor, _)| tensor);
        let Some(table) = of("token_embd.weight") else { return Ok(Vec::new()) };
        let same = |tensor: &SafetensorsTensor| {
            (tensor.dtype, &tensor.shape) == (table.dtype, &table.shape) && *tensor.data == *table.data
        };
        let names = TABLES.iter().filter(|&&name| !(untied && name == HEAD));
        Ok(names.copied().filter(|name| of(name).is_some_and(same)).collect())
    }

    /// Returns the source's tensor for `name`, whether or not the model uses it.
    pub(super) fn stored(&self, name: &str) -> Option<&SafetensorsTensor> {
        self.look_up(name).map(|(_, tensor, _)| tensor)
    }

    fn find(&self, name: &str) -> Option<(&str, &SafetensorsTensor, TensorTransform)> {
        if self.repeated.contains(&name) {
            return None;
        }
        self.look_up(name)
    }

    fn look_up(&self, name: &str) -> Option<(&str, &SafetensorsTensor, TensorTransform)> {
        let (source, take) = names::apply(self.descriptor.hugging_face.rules, name)?;
        let known = match self.tensors.get_key_value(&source) {
            Some(exact) => exact,
            None => self.tensors.get_key_value(self.bare.get(names::bare(&source))?.as_ref()?)?,
        };
        Some((known.0, known.1, take))
    }
}

impl ModelSource for HuggingFace {
    fn family(&self) -> &'static Family {
        self.descriptor.family
    }

    fn config(&self) -> &ConfigReader {
        &self.config
    }

    fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn tensor(&self, name: &str) -> Result<SourceTensor> {
        let (source, tensor, take) = self.find(name).ok_or_else(|| {
            let expected = names::apply(self.descriptor.hugging_face.rules, name);
            let message = match expected {
                Some((source, _)) => format!("the folder has no {source}"),
                None => format!("not part of the family {}", self.descriptor.family.name),
            };
            Error::new(ErrorKind::Missing, name, message)
        })?;
        let location = || format!("safetensors: {source}");
        let block = match tensor.dtype {
            "F32" => BlockType::F32,
            "F16" => BlockType::F16,
            "BF16" => BlockType::BF16,
            other => {
                return Err(Error::unsupported(
                    location(),
                    format!("weights of type {other} are not supported"),
                ));
            }
        };
        let size = |size: u64| usize::try_from(size).ok();
        let (last, first) = tensor.shape.split_last().unwrap_or((&1, &[]));
        let rows = first.iter().try_fold(1usize, |product, &dim| product.checked_mul(size(dim)?));
        let (Some(rows), Some(columns)) = (rows, size(*last)) else {
            return Err(Error::corrupt(location(), "the shape is too large"));
        };
        let tensor =
            SourceTensor { name: source.to_owned(), block, rows, columns, data: tensor.data.clone(), take };
        if self.transposed.contains(source) { turned(tensor) } else { Ok(tensor) }
    }

    fn tokenizer(&self) -> Result<Option<Vec<u8>>> {
        let writes = matches!(self.descriptor.family.topology, Topology::Decoder(_));
        tokenizer(&self.folder, &if writes { ends(&self.config) } else { Vec::new() })
    }

    fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn license(&self) -> Option<&str> {
        None
    }

    fn lists(&self) -> Result<Vec<(String, Vec<f32>)>> {
        sentence_transformers::numbers(&self.folder, self.config.get("sentence_transformers"))
    }

    fn provenance(&self) -> Map<String, Value> {
        let version = self.config.get("transformers_version").cloned();
        version.map(|version| ("transformers_version".to_owned(), version)).into_iter().collect()
    }
}

/// Returns the same tensor for a source that stores it transposed.
fn turned(tensor: SourceTensor) -> Result<SourceTensor> {
    match tensor.take {
        TensorTransform::Whole => Ok(SourceTensor { take: TensorTransform::Transposed, ..tensor }),
        TensorTransform::Transposed => Ok(SourceTensor { take: TensorTransform::Whole, ..tensor }),
        _ => {
            let SourceTensor { rows, columns, .. } = tensor;
            let width = tensor.block.row_bytes(1).unwrap_or(1).max(1);
            let mut data = Vec::with_capacity(tensor.data.len());
            for column in 0..columns {
                for row in 0..rows {
                    let start = (row * columns + column) * width;
                    data.extend_from_slice(tensor.data.get(start..start + width).unwrap_or_default());
                }
            }
            Ok(SourceTensor { rows: columns, columns: rows, data: Bytes::new(data), ..tensor })
        }
    }
}

/// Returns the EOS ids of the generation configuration, or those of the model's configuration if it has none.
fn ends(config: &ConfigReader) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match config.get("generation/eos_token_id").or_else(|| config.get("eos_token_id")) {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Returns the tokenizer section, if `folder` has a tokenizer. `ends` are EOS ids in addition to the tokenizer's own.
pub(super) fn tokenizer(folder: &Path, ends: &[u32]) -> Result<Option<Vec<u8>>> {
    let read = |name: &str| read(&folder.join(name), name);
    let Some(tokenizer) = read("tokenizer.json")? else { return Ok(None) };
    let config = read("tokenizer_config.json")?;
    let mut vocabulary = tokenizer_json::vocabulary(&tokenizer, config.as_deref())?;
    let known = ends.iter().filter(|&&id| (id as usize) < vocabulary.tokens.len());
    vocabulary.ends.extend(known);
    vocabulary.ends.sort_unstable();
    vocabulary.ends.dedup();
    vocabulary.write().map(Some)
}

/// Returns the family, and what the files of `folder` say about the model and its use.
pub(super) fn describe(folder: &Path) -> Result<(&'static FamilyDescriptor, Map<String, Value>)> {
    let config = read_object(&folder.join("config.json"), MAX_CONFIG_VALUES)?;
    let (descriptor, mut config) = family_and_config(config)?;
    add_settings(folder, &mut config)?;
    Ok((descriptor, config))
}

/// Adds the settings of other files than `config.json`.
pub(super) fn add_settings(folder: &Path, config: &mut Map<String, Value>) -> Result<()> {
    if let Some(settings) = sentence_transformers::settings(folder)? {
        config.insert("sentence_transformers".to_owned(), settings);
    }
    if let Some(settings) = generation(folder)? {
        config.insert("generation".to_owned(), Value::Object(settings));
    }
    Ok(())
}

/// Returns `config.json` unchanged, or `None` if it is missing.
#[cfg(feature = "tract")]
pub(super) fn plain_config(folder: &Path) -> Result<Option<Map<String, Value>>> {
    let path = folder.join("config.json");
    if path.is_file() { read_object(&path, MAX_CONFIG_VALUES).map(Some) } else { Ok(None) }
}

/// Returns the family, and the configuration of the text model if it is nested in a larger one.
fn family_and_config(
    mut config: Map<String, Value>,
) -> Result<(&'static FamilyDescriptor, Map<String, Value>)> {
    let model_type =
        |config: &Map<String, Value>| config.get("model_type").and_then(Value::as_str).map(str::to_owned);
    let outer = model_type(&config)
        .ok_or_else(|| Error::new(ErrorKind::Missing, "config.model_type", "missing from config.json"))?;
    let Some(Value::Object(text)) = config.remove("text_config") else {
        let descriptor = FamilyDescriptor::of_hugging_face(&outer)?;
        defaults::fill(&outer, &mut config);
        return Ok((descriptor, config));
    };
    let inner = model_type(&text).filter(|inner| FamilyDescriptor::of_hugging_face(inner).is_ok());
    let kind = inner.unwrap_or(outer);
    let descriptor = FamilyDescriptor::of_hugging_face(&kind)?;
    config.remove("vision_config");
    config.remove("audio_config");
    config.extend(text);
    defaults::fill(&kind, &mut config);
    Ok((descriptor, config))
}

fn read_tensors(folder: &Path) -> Result<HashMap<String, SafetensorsTensor>> {
    let whole = folder.join("model.safetensors");
    if whole.is_file() {
        return read_shard(&whole);
    }
    let index = folder.join("model.safetensors.index.json");
    if !index.is_file() {
        let message =
            "neither this file nor model.safetensors.index.json exists; other weight files are not supported";
        return Err(Error::new(ErrorKind::Missing, "model.safetensors", message));
    }
    let index = read_object(&index, MAX_VALUES)?;
    let Some(Value::Object(places)) = index.get("weight_map") else {
        return Err(Error::corrupt("model.safetensors.index.json: weight_map", "not an object"));
    };
    let mut shards = BTreeSet::new();
    for (name, shard) in places {
        let plain = shard.as_str().filter(|shard| Path::new(shard).file_name() == Some(shard.as_ref()));
        shards.insert(plain.ok_or_else(|| {
            let location = format!("model.safetensors.index.json: weight_map.{name}");
            Error::corrupt(location, "not a file name of the folder")
        })?);
    }
    let mut tensors = HashMap::new();
    for shard in shards {
        for (name, tensor) in read_shard(&folder.join(shard))? {
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(Error::corrupt(format!("{shard}: {name}"), "occurs in two shards"));
            }
        }
    }
    match places.keys().find(|name| !tensors.contains_key(*name)) {
        Some(name) => Err(Error::new(ErrorKind::Missing, name, "in the index, but in no shard")),
        None => Ok(tensors),
    }
}

fn read_shard(path: &Path) -> Result<HashMap<String, SafetensorsTensor>> {
    safetensors::parse(map(path)?).map_err(|error| error.within(&name_of(path)))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read_text(path: &Path) -> Result<Option<String>> {
    let name = name_of(path);
    let text = read(path, &name)?.map(String::from_utf8).transpose();
    text.map_err(|error| Error::corrupt(name, format!("not UTF-8: {}", error.utf8_error())))
}

fn read_object(path: &Path, max_values: usize) -> Result<Map<String, Value>> {
    let name = name_of(path);
    let bytes =
        read(path, &name)?.ok_or_else(|| Error::new(ErrorKind::Missing, &name, "missing from the folder"))?;
    parse_json(&bytes, &name, max_values)
}

/// Returns `generation_config.json`, the model's default generation settings.
fn generation(folder: &Path) -> Result<Option<Map<String, Value>>> {
    let path = folder.join("generation_config.json");
    if path.is_file() { read_object(&path, MAX_GENERATION_VALUES).map(Some) } else { Ok(None) }
}

/// Returns the chat template: a separate file, or a key of the tokenizer configuration.
pub(super) fn read_template(folder: &Path) -> Result<Option<String>> {
    if let Some(text) = read_text(&folder.join("chat_template.jinja"))? {
        return Ok(Some(text));
    }
    for file in ["chat_template.json", "tokenizer_config.json"] {
        let path = folder.join(file);
        if !path.is_file() {
            continue;
        }
        match read_object(&path, MAX_VALUES)?.get("chat_template") {
            Some(Value::String(text)) => return Ok(Some(text.clone())),
            Some(Value::Array(list)) => {
                let named =
                    |name: &str| list.iter().find(|entry| entry.get("name") == Some(&Value::from(name)));
                let entry = named("default").or_else(|| list.first());
                if let Some(text) = entry.and_then(|entry| entry.get("template")).and_then(Value::as_str) {
                    return Ok(Some(text.to_owned()));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}
