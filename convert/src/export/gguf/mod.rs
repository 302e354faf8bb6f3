//! Writes GGUF files for llama.cpp, with its tensor names, keys and tokenizer tables. Quantized blocks are kept as they
//! are.

mod keys;
mod tokenizer;
mod value;

use super::model::ExportModel;
use super::tensors::{self, Entry};
use super::{Dtype, ExportFormat, ExportOptions, ExportReport, round_trip};
use crate::import::{BIDIRECTIONAL, FACTORS};
use serde_json::{Map, Value as Json};
use siskin_format::{Error, Result};
use siskin_graph::arch::{ConfigReader, DESCRIPTORS, FamilyDescriptor, TensorRule};
use siskin_kernels::quant::BlockType;
use std::io::Write;
use std::path::Path;
use value::MetadataValue;

pub(super) static FORMAT: ExportFormat = ExportFormat { name: "gguf", ending: "gguf", write };

/// Alignment of tensor data in bytes.
const ALIGNMENT: usize = 32;
const VERSION: u32 = 3;
/// Head tensors that llama.cpp does not support: it rejects files with unknown tensors.
const FOREIGN: &[&str] = &["tokens.", "tokens_norm.", "output_bias", "labels.", "answer."];

/// Returns llama.cpp's architecture name and tensor rules of the family.
fn architecture(model: &ExportModel<'_>) -> Result<(&'static str, &'static [&'static [TensorRule]])> {
    let (ours, keys) = (model.descriptor.family.name, &model.descriptor.gguf.keys);
    let descriptor = keys.runs_as.unwrap_or(model.descriptor);
    if model.is_reader() && model.is_bidirectional() {
        let architecture = keys.bidirectional.ok_or_else(|| {
            let known: Vec<_> = names_of(|descriptor| descriptor.gguf.keys.bidirectional.is_some()).collect();
            let message =
                format!("llama.cpp has no bidirectional attention for {ours}, only for {}", known.join(", "));
            Error::unsupported("gguf", message)
        })?;
        return Ok((architecture, descriptor.gguf.rules));
    }
    let architecture = descriptor.gguf.architectures.first().ok_or_else(|| {
        let is_known = |family: &FamilyDescriptor| {
            !family.gguf.architectures.is_empty() || family.gguf.keys.runs_as.is_some()
        };
        let mut known: Vec<_> = names_of(is_known).collect();
        known.sort_unstable();
        let message =
            format!("llama.cpp does not support the family {ours}; it supports {}", known.join(", "));
        Error::unsupported("gguf", message)
    })?;
    Ok((architecture, descriptor.gguf.rules))
}

/// Returns the names of the families for which `is_one` returns true.
fn names_of(is_one: impl Fn(&FamilyDescriptor) -> bool) -> impl Iterator<Item = &'static str> {
    DESCRIPTORS.iter().filter(move |descriptor| is_one(descriptor)).map(|descriptor| descriptor.family.name)
}

/// A tensor of the file that is not a weight of the graph.
struct Extra {
    name: &'static str,
    numbers: Vec<f32>,
}

fn write(model: &ExportModel<'_>, to: &Path, options: &ExportOptions<'_>) -> Result<ExportReport> {
    let (architecture, rules) = architecture(model)?;
    let mut report = ExportReport::default();
    let mut entries =
        tensors::entries(model, rules, |weight| Ok(weight.name.replace("ffn_single", "ffn_up")))?;
    // GGUF has no dimension for the only channel of each group.
    for entry in entries.iter_mut().filter(|entry| entry.kernel.is_some()) {
        entry.shape.remove(1);
    }
    if model.graphs.decoder.is_none() {
        let all = entries.len();
        let foreign =
            |name: &str| FOREIGN.iter().any(|part| name.starts_with(part)) || name == "output.weight";
        entries.retain(|entry| !foreign(&entry.name));
        if entries.len() < all {
            report.notes.push("llama.cpp does not support the model's head: it is omitted".to_owned());
        }
    }
    let types: Vec<_> = entries.iter().map(|entry| block(model, entry, options.dtype)).collect();
    let lost =
        entries.iter().zip(&types).filter(|(entry, block)| entry.native(model) != Some(**block)).count();
    if lost > 0 && options.dtype == Dtype::Keep {
        report.notes.push(format!("{lost} tensors whose types are not GGUF block types become F16"));
    }
    let mut metadata = keys::of(model, architecture, &types, &mut report.notes)?;
    metadata.extend(tokenizer::keys(model, &mut report.notes)?);
    let extras = keys::factors(model)?;
    if model.source() != "GGUF" {
        check_keys(model, architecture, &metadata, &extras)?;
    }
    let head = head(&metadata, &entries, &types, &extras)?;
    let io = |error: std::io::Error| Error::io(to.display().to_string(), &error);
    let mut out = options.create(to)?;
    out.write_all(&head).map_err(io)?;
    options.progress.message("writing");
    options
        .progress
        .total(entries.iter().zip(&types).filter_map(|(entry, block)| entry.bytes(*block).ok()).sum());
    for (entry, block) in entries.iter().zip(&types) {
        entry.write_with(*block, options.progress, &mut |bytes| out.write_all(bytes).map_err(io))?;
        out.write_all(&padding(entry.bytes(*block)?)).map_err(io)?;
    }
    for extra in &extras {
        let bytes: Vec<u8> = extra.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        out.write_all(&bytes).map_err(io)?;
        out.write_all(&padding(bytes.len() as u64)).map_err(io)?;
    }
    out.commit()?;
    if model.source() != "GGUF" {
        tokenizer::compare(model, to, &mut report.notes)?;
    }
    report.files.push(to.to_owned());
    Ok(report)
}

/// Rejects a model with hyperparameters that llama.cpp has no key for.
fn check_keys(
    model: &ExportModel<'_>,
    architecture: &str,
    metadata: &[(String, MetadataValue)],
    extras: &[Extra],
) -> Result<()> {
    // The head of an encoder is not written.
    let stays = |name: &str| {
        model.graphs.decoder.is_some()
            || name != "output.weight" && !FOREIGN.iter().any(|part| name.starts_with(part))
    };
    let has = |name: &str| stays(name) && model.file.tensor(name).is_some();
    let (_, own) = model.descriptor.family.build(&model.config, &has)?;
    let config = config_of(model, architecture, metadata, extras);
    let read = FamilyDescriptor::of_gguf(architecture)?.family.build(&config, &has);
    round_trip::check(own, read, "gguf", keys::accepted_differences(model))
}

/// Returns the hyperparameters as an importer would read them from the file.
fn config_of(
    model: &ExportModel<'_>,
    architecture: &str,
    metadata: &[(String, MetadataValue)],
    extras: &[Extra],
) -> ConfigReader {
    let prefix = format!("{architecture}.");
    let ours = metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.to_owned(), value.json()?)));
    let mut config: Map<String, Json> = ours.collect();
    config.insert("vocab_size".to_owned(), model.model_config.vocabulary.into());
    config.insert("token_type_count".to_owned(), model.model_config.token_types.into());
    if model.descriptor.gguf.keys.bidirectional == Some(architecture) {
        config.insert(BIDIRECTIONAL.to_owned(), true.into());
    }
    if let Some(sentence) = model.config.get("sentence_transformers") {
        config.insert("sentence_transformers".to_owned(), sentence.clone());
    }
    for extra in extras {
        if let Some((_, key)) = FACTORS.iter().find(|(name, _)| *name == extra.name) {
            config.insert((*key).to_owned(), extra.numbers.iter().map(|&number| f64::from(number)).collect());
        }
    }
    ConfigReader::new(config)
}

/// Returns the block type that a tensor is written as: vectors are always f32.
fn block(model: &ExportModel<'_>, entry: &Entry<'_>, dtype: Dtype) -> BlockType {
    if entry.is_vector() {
        return BlockType::F32;
    }
    dtype.block().or_else(|| entry.native(model)).unwrap_or(BlockType::F16)
}

fn padding(bytes: u64) -> Vec<u8> {
    let rest = (bytes % ALIGNMENT as u64) as usize;
    vec![0; if rest == 0 { 0 } else { ALIGNMENT - rest }]
}

/// Builds everything before the tensor data.
fn head(
    metadata: &[(String, MetadataValue)],
    entries: &[Entry<'_>],
    types: &[BlockType],
    extras: &[Extra],
) -> Result<Vec<u8>> {
    let mut out = b"GGUF".to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend(((entries.len() + extras.len()) as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        value::text(key.as_bytes(), &mut out);
        value.write(&mut out);
    }
    let mut offset = 0u64;
    let mut describe = |name: &str, shape: &[usize], block: BlockType, bytes: u64| {
        value::text(name.as_bytes(), &mut out);
        out.extend((shape.len() as u32).to_le_bytes());
        out.extend(shape.iter().rev().flat_map(|&size| (size as u64).to_le_bytes()));
        out.extend(block.codec().gguf_id.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += bytes.next_multiple_of(ALIGNMENT as u64);
    };
    for (entry, block) in entries.iter().zip(types) {
        describe(&entry.name, &entry.shape, *block, entry.bytes(*block)?);
    }
    for extra in extras {
        describe(extra.name, &[extra.numbers.len()], BlockType::F32, 4 * extra.numbers.len() as u64);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    Ok(out)
}
