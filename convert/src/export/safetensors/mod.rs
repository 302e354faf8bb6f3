//! Writes a Hugging Face folder: safetensors, configuration, tokenizer.

mod pipeline;
mod tokenizer;

pub use tokenizer::tokenizer_json;

use super::model::ExportModel;
use super::tensors::{self, Entry};
use super::{ExportFormat, ExportOptions, ExportReport, finish, settings};
use serde_json::{Map, Value, json};
use siskin_format::file::reject_link;
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::Pooling;
use siskin_kernels::quant::BlockType;
use std::io::Write;
use std::path::Path;

/// Text files that exports write, each if the model has its content.
const OWN: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "modules.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "3_Dense/config.json",
    "3_Dense/model.safetensors",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];
/// Files that other programs may read in addition to these.
const STAY: &[&str] = &[
    "added_tokens.json",
    "merges.txt",
    "pytorch_model.bin",
    "preprocessor_config.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
];

pub(super) static FORMAT: ExportFormat = ExportFormat { name: "safetensors", ending: "", write };

fn write(model: &ExportModel<'_>, to: &Path, options: &ExportOptions<'_>) -> Result<ExportReport> {
    let entries = tensors::entries(model, model.descriptor.hugging_face.rules, |weight| {
        let message = format!("no Hugging Face name in the family {}", model.descriptor.family.name);
        Err(Error::unsupported(&weight.name, message))
    })?;
    let usual = tensors::usual_float(model, &entries);
    let types = entries.iter().map(|entry| entry.float(model, options.dtype, usual));
    let types = types.collect::<Result<Vec<_>>>()?;
    let mut report = ExportReport::default();
    let mut texts = files(model, options.dtype.block().unwrap_or(usual), &mut report.notes)?;
    if entries.iter().any(|entry| entry.native(model).is_none_or(|block| block.codec().elements != 1)) {
        report.notes.push("quantized weights are exported as floats".to_owned());
    }
    if model.model_config.features > 0 {
        let note =
            "preprocessor_config.json is not exported: copy that of the original model for other programs";
        report.notes.push(note.to_owned());
    }
    let leftovers = options.leftovers(to, others_in(to, &texts))?;
    let stays = STAY.iter().filter(|name| options.force && to.join(name).is_file());
    report
        .notes
        .extend(stays.map(|name| format!("{name} existed and is kept: does it belong to this model?")));
    std::fs::create_dir_all(to).map_err(|error| Error::io(to.display().to_string(), &error))?;
    // All files are created before the first is complete, so that existing files stop the export at once.
    let names = texts.iter().map(|(name, _)| name.as_str());
    for name in names.filter(|name| name.contains('/')) {
        let folder = to.join(name);
        let folder = folder.parent().unwrap_or(to);
        reject_link(folder)?;
        std::fs::create_dir_all(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
    }
    let mut weights = options.create_in_folder(&to.join("model.safetensors"))?;
    report.files.push(to.join("model.safetensors"));
    let mut others = Vec::new();
    for (name, text) in texts.drain(..) {
        let path = to.join(name);
        let mut file = options.create_in_folder(&path)?;
        file.write_all(&text).map_err(|error| Error::io(path.display().to_string(), &error))?;
        others.push(file);
        report.files.push(path);
    }
    write_weights(&entries, &types, options, &mut weights)?;
    finish(others.into_iter().chain([weights]), &leftovers)?;
    Ok(report)
}

/// Returns the files in a folder under names that exports write, but that this export does not write.
fn others_in(folder: &Path, texts: &[(String, Vec<u8>)]) -> Vec<String> {
    let mut names: Vec<String> = OWN.iter().map(|name| (*name).to_owned()).collect();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let small = name.to_ascii_lowercase();
        let of_weights = small.ends_with(".safetensors") || small.ends_with(".safetensors.index.json");
        // Files that only accompany a model, such as an adapter, are kept.
        if small.starts_with("model") && of_weights && entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
            names.push(name);
        }
    }
    names.retain(|name| name != "model.safetensors" && texts.iter().all(|(written, _)| written != name));
    names
}

fn write_weights(
    entries: &[Entry<'_>],
    types: &[BlockType],
    options: &ExportOptions<'_>,
    out: &mut impl Write,
) -> Result<()> {
    let io = |error: std::io::Error| Error::io("model.safetensors", &error);
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut end = 0;
    for (entry, block) in entries.iter().zip(types) {
        let start = end;
        end += entry.bytes(*block)?;
        header.insert(
            entry.name.clone(),
            json!({"dtype": block.name(), "shape": entry.shape, "data_offsets": [start, end]}),
        );
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    out.write_all(&header).map_err(io)?;
    options.progress.message("writing");
    options.progress.total(end);
    for (entry, block) in entries.iter().zip(types) {
        entry.write_with(*block, options.progress, &mut |bytes| out.write_all(bytes).map_err(io))?;
    }
    Ok(())
}

/// Returns the text files next to the weights.
fn files(
    model: &ExportModel<'_>,
    dtype: BlockType,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, Vec<u8>)>> {
    let mut config = settings::hugging_face(model, notes)?;
    let mut files = Vec::new();
    let mut add = |name: &str, value: &Value| files.push((name.to_owned(), pretty(value)));
    if let Some(generation) = config.remove("generation") {
        add("generation_config.json", &generation);
    }
    let sentences = config.remove("sentence_transformers");
    let dtype = match dtype {
        BlockType::F16 => "float16",
        BlockType::BF16 => "bfloat16",
        _ => "float32",
    };
    let key = if config.contains_key("torch_dtype") { "torch_dtype" } else { "dtype" };
    config.insert(key.to_owned(), dtype.into());
    add("config.json", &Value::Object(config));
    tokenizer::files(model, &mut add, notes)?;
    if let Some(settings) = sentences {
        sentence_transformers(model, &settings, &mut files)?;
    }
    if let Some(template) = model.file.template() {
        files.push(("chat_template.jinja".to_owned(), template.as_bytes().to_vec()));
    }
    Ok(files)
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Adds the embedding settings as files of sentence-transformers.
fn sentence_transformers(
    model: &ExportModel<'_>,
    settings: &Value,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<()> {
    let layers = settings.get("dense").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut add = |name: &str, value: &Value| files.push((name.to_owned(), pretty(value)));
    let module = |number: usize, path: &str, kind: &str| {
        json!({"idx": number, "name": number.to_string(), "path": path,
            "type": format!("sentence_transformers.models.{kind}")})
    };
    let mut modules = vec![module(0, "", "Transformer")];
    if let Some(pooling) = settings.get("pooling").and_then(Value::as_str) {
        modules.push(module(1, "1_Pooling", "Pooling"));
        let chosen = Pooling::NAMES.iter().find(|(_, name)| *name == pooling).map(|(way, _)| *way);
        let mut ways: Map<String, Value> = crate::import::POOLING_KEYS
            .iter()
            .map(|(key, way)| ((*key).to_owned(), (Some(*way) == chosen).into()))
            .collect();
        ways.insert("word_embedding_dimension".to_owned(), model.model_config.width.into());
        ways.insert("pooling_mode_mean_sqrt_len_tokens".to_owned(), false.into());
        ways.insert(
            "include_prompt".to_owned(),
            (settings.get("include_prompt") != Some(&Value::Bool(false))).into(),
        );
        add("1_Pooling/config.json", &Value::Object(ways));
    }
    for layer in &layers {
        let number = modules.len();
        modules.push(module(number, &format!("{number}_Dense"), "Dense"));
        let named = |(_, ours): &&(&str, &str)| layer.get("activation") == Some(&Value::from(*ours));
        let activation = crate::import::ACTIVATIONS.iter().find(named).map(|(name, _)| *name);
        let config = json!({"in_features": layer.get("inputs"), "out_features": layer.get("outputs"),
            "bias": model.file.tensor(&format!("sentence.{}.bias", number - 2)).is_some(),
            "activation_function": activation});
        add(&format!("{number}_Dense/config.json"), &config);
    }
    if settings.get("normalize") == Some(&Value::Bool(true)) {
        modules.push(module(modules.len(), &format!("{}_Normalize", modules.len()), "Normalize"));
    }
    add("modules.json", &Value::Array(modules));
    if let Some(max_tokens) = settings.get("most_tokens").filter(|max_tokens| !max_tokens.is_null()) {
        add("sentence_bert_config.json", &json!({"max_seq_length": max_tokens, "do_lower_case": false}));
    }
    if let Some(prompts) = settings.get("prompts") {
        let usual = settings.get("default_prompt_name");
        add("config_sentence_transformers.json", &json!({"prompts": prompts, "default_prompt_name": usual}));
    }
    for (index, layer) in layers.iter().enumerate() {
        files.push((format!("{}_Dense/model.safetensors", index + 2), layer_file(model, index, layer)?));
    }
    Ok(())
}

/// Returns the safetensors file of a dense layer after pooling.
fn layer_file(model: &ExportModel<'_>, index: usize, layer: &Value) -> Result<Vec<u8>> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for kind in ["weight", "bias"] {
        let name = format!("sentence.{index}.{kind}");
        let shape = match kind {
            "weight" => json!([layer.get("outputs"), layer.get("inputs")]),
            _ => json!([layer.get("outputs")]),
        };
        match model.file.tensor(&name) {
            Some(tensor) => {
                let start = data.len();
                data.extend_from_slice(&tensor.data);
                let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
                header.insert(format!("linear.{kind}"), entry);
            }
            None if kind == "weight" => {
                return Err(Error::new(ErrorKind::Missing, name, "missing from the file"));
            }
            None => {}
        }
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok([&(header.len() as u64).to_le_bytes()[..], &header, &data].concat())
}
