//! The small random encoders and encoder–decoders of `tests/data/golden-texts`, with PyTorch's reference results.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use siskin::OutputHead;
use siskin::encoder::EncoderInput;
use siskin::file::{Bytes, File};
use siskin::{Encoder, EncoderOptions, Model, OutputRows, SessionOptions};
use siskin_convert::import::safetensors::{self, SafetensorsTensor};
use siskin_convert::{OpenOptions, PackedCache, Recipe, open_any};

use crate::paths;

/// All models.
pub const NAMES: &[&str] = &[
    "bert",
    "bert-classes",
    "bert-labels",
    "bert-answer",
    "roberta",
    "roberta-classes",
    "distilbert",
    "albert",
    "electra",
    "mpnet",
    "modernbert",
    "bigbird",
    "bigbird-blocks",
    "bert-linear",
    "bert-mixed",
    "nomic-bert",
    "gte",
    "gemma3",
    "mistral",
    "qwen3",
    "mobilebert",
    "longformer",
    "t5",
    "flan-t5",
    "switch",
    "bart",
    "mbart",
    "marian",
    "m2m",
    "pegasus",
    "whisper",
];

/// The encoder–decoders among them.
pub const WRITERS: &[&str] =
    &["t5", "flan-t5", "switch", "bart", "mbart", "marian", "m2m", "pegasus", "whisper"];

/// A model with its inputs and expected results.
#[derive(Debug)]
pub struct GoldenTexts {
    /// The packed model.
    pub file: File,
    /// The encoder inputs.
    pub texts: Vec<EncoderInput>,
    /// The encoder outputs of each text, without padding.
    pub read: Vec<Vec<f32>>,
    /// The decoder input for each text; empty for encoder-only models.
    pub written: Vec<Vec<u32>>,
    /// The logits after each of these tokens.
    pub scores: Vec<Vec<f32>>,
}

/// Reads and packs a model, with matrices of the types of `recipe`.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn load(name: &str, recipe: Option<Recipe>) -> GoldenTexts {
    load_from(&paths::data("golden-texts").join(name), recipe)
}

/// Does the same for a folder.
///
/// # Panics
/// As [`load`].
pub fn load_from(folder: &Path, recipe: Option<Recipe>) -> GoldenTexts {
    let options = OpenOptions { cache: PackedCache::Off, recipe, ..OpenOptions::default() };
    let file = open_any(folder, &options).expect("a golden model packs");
    let io = std::fs::read(folder.join("io.safetensors")).expect("io.safetensors is there");
    let io = safetensors::parse(Bytes::new(io)).expect("io.safetensors parses");
    let mask = io.get("attention_mask").map(rows_of_ids);
    let written = io.get("decoder_input_ids").map(rows_of_ids).unwrap_or_default();
    let outputs = ["encoder_hidden", "last_hidden_state", "logits"];
    let read = outputs.iter().find_map(|name| io.get(*name)).expect("an output is there");
    let mut read = rows_of_numbers(read);
    if let Some(mask) = mask.filter(|_| io[outputs_of(&io)].shape.len() == 3) {
        for (row, mask) in read.iter_mut().zip(&mask) {
            let columns = row.len() / mask.len();
            row.truncate(columns * mask.iter().filter(|&&there| there == 1).count());
        }
    }
    let scores = if written.is_empty() { Vec::new() } else { rows_of_numbers(&io["logits"]) };
    GoldenTexts { file, texts: texts(&io), read, written, scores }
}

fn outputs_of(io: &HashMap<String, SafetensorsTensor>) -> &'static str {
    ["encoder_hidden", "last_hidden_state"]
        .into_iter()
        .find(|name| io.contains_key(*name))
        .unwrap_or("logits")
}

fn texts(io: &HashMap<String, SafetensorsTensor>) -> Vec<EncoderInput> {
    if let Some(features) = io.get("input_features") {
        let (columns, frames) = (features.shape[1] as usize, features.shape[2] as usize);
        let turned = |values: Vec<f32>| -> Vec<f32> {
            (0..frames)
                .flat_map(|frame| (0..columns).map(move |c| c * frames + frame))
                .map(|i| values[i])
                .collect()
        };
        let text = |values| EncoderInput { features: turned(values), ..EncoderInput::default() };
        return rows_of_numbers(features).into_iter().map(text).collect();
    }
    let mask = rows_of_ids(&io["attention_mask"]);
    let token_types = io.get("token_type_ids").map(rows_of_ids);
    let marks = io.get("global_attention_mask").map(rows_of_ids);
    let text = |(row, mut ids): (usize, Vec<u32>)| {
        let count = mask[row].iter().filter(|&&there| there == 1).count();
        ids.truncate(count);
        let token_type_ids = token_types.as_ref().map(|all| all[row][..count].to_vec()).unwrap_or_default();
        let global = marks.as_ref().map(|all| (0..count).filter(|&place| all[row][place] == 1).collect());
        EncoderInput {
            ids,
            token_type_ids,
            global_positions: global.unwrap_or_default(),
            ..EncoderInput::default()
        }
    };
    rows_of_ids(&io["input_ids"]).into_iter().enumerate().map(text).collect()
}

fn rows_of_ids(tensor: &SafetensorsTensor) -> Vec<Vec<u32>> {
    let words = tensor.data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32);
    let words: Vec<u32> = words.collect();
    words.chunks(tensor.shape[1] as usize).map(<[u32]>::to_vec).collect()
}

fn rows_of_numbers(tensor: &SafetensorsTensor) -> Vec<Vec<f32>> {
    let numbers = tensor.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let numbers: Vec<f32> = numbers.collect();
    numbers.chunks(numbers.len() / tensor.shape[0] as usize).map(<[f32]>::to_vec).collect()
}

/// Creates an encoder of `model` with up to `batch` rows per batch.
///
/// # Panics
/// If the model has no encoder.
pub fn encoder(model: &Model, batch: usize) -> Encoder {
    model.encoder(EncoderOptions { batch, ..EncoderOptions::default() }).expect("an encoder opens")
}

/// Returns the output rows of each text: of every token, or of the text if the head gives classes.
///
/// # Panics
/// If the model fails.
pub fn read(model: &Model, texts: &[EncoderInput], batch: usize) -> Vec<Vec<f32>> {
    let mut encoder = encoder(model, batch);
    let wanted = if encoder.head() == OutputHead::Class { OutputRows::First } else { OutputRows::All };
    rows(&mut encoder, texts, wanted)
}

/// Returns the selected output rows of each text, concatenated.
///
/// # Panics
/// If the model fails.
pub fn rows(encoder: &mut Encoder, texts: &[EncoderInput], wanted: OutputRows<'_>) -> Vec<Vec<f32>> {
    let mut all = vec![Vec::new(); texts.len()];
    let each = &mut |text: usize, outputs: siskin::encoder::TextOutputs<'_>| {
        all[text] = outputs.rows().flatten().copied().collect();
        Ok(())
    };
    encoder.encode(texts, wanted, each).expect("the model runs");
    all
}

/// Returns the logits after each token of `written`, with `text` as the encoder input.
///
/// # Panics
/// If the model fails.
pub fn score(model: &Model, text: &EncoderInput, written: &[u32], batch: usize) -> Vec<f32> {
    let options = SessionOptions { batch, context: 32, ..SessionOptions::default() };
    let mut session = model.session(options).expect("a session opens");
    session.encode(text).expect("the model reads");
    let mut all = Vec::new();
    session.score(written, &mut |_, scores| all.extend_from_slice(scores)).expect("the model runs");
    all
}

/// Packs the tiny model of `tests/data/<folder>` with a tokenizer of the words w5 to w79.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn with_words(folder: &str) -> File {
    changed(folder, |_| {})
}

/// Does the same after applying `change` to the folder that is packed.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn changed(folder: &str, change: impl FnOnce(&Path)) -> File {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = std::env::temp_dir().join(format!("siskin-words-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a folder can be made");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(paths::data(folder).join(name), place.join(name)).expect("the model is there");
    }
    let words = paths::data("golden-exits").join("words.json");
    std::fs::copy(words, place.join("tokenizer.json")).expect("the tokenizer is there");
    change(&place);
    let options = OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() };
    let file = open_any(&place, &options).expect("a golden model packs");
    // The folder is no longer needed.
    let _ = std::fs::remove_dir_all(&place);
    file
}

/// Modifies a JSON file.
///
/// # Panics
/// If it is missing or corrupt.
pub fn change_json(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&std::fs::read(path).expect("it is there")).expect("it is JSON");
    change(&mut value);
    std::fs::write(path, value.to_string()).expect("it is written");
}

/// Zeros a folder's tensors whose names end in one of `names`.
///
/// # Panics
/// If the file is missing or corrupt, or has no such tensor.
pub fn zero(folder: &Path, names: &[&str]) {
    let path = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&path).expect("the model is there");
    let length = bytes.first_chunk().map(|length| u64::from_le_bytes(*length)).expect("it has a length");
    let (header, data) = bytes[8..].split_at_mut(length as usize);
    let header: HashMap<String, Value> = serde_json::from_slice(header).expect("the header is JSON");
    for name in names {
        let mut found = header.iter().filter(|(known, _)| known.ends_with(name)).peekable();
        assert!(found.peek().is_some(), "no tensor {name}");
        for (_, tensor) in found {
            let at = |end: usize| tensor["data_offsets"][end].as_u64().expect("it is a place") as usize;
            data[at(0)..at(1)].fill(0);
        }
    }
    std::fs::write(path, bytes).expect("it is written");
}
