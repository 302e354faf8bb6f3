//! PyTorch's gradients of the golden models: a sample of each tensor, under our names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use siskin::file::{Bytes, File};
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, open_any};
use siskin_graph::{OutputHead, RowKind};
use siskin_trainer::batch::{BatchSequences, TrainingBatch};
use siskin_trainer::loss::{Loss, LossRows, LossSum, Targets};
use siskin_trainer::{Parameters, Program, Real};

use crate::{golden, paths, texts};

/// Number of sampled elements per tensor.
const KEPT: usize = 96;

/// Models that Transformers does not compute as intended: their references were created by other means.
pub const WITHOUT: &[&str] = &["bert-linear", "bert-mixed", "bigbird-blocks", "llama-linear"];

/// Tensors that are not parameters in PyTorch.
pub const UNTRAINED: &[(&str, &str)] = &[
    ("bart", "output_bias"),
    ("mbart", "output_bias"),
    ("marian", "output_bias"),
    ("pegasus", "output_bias"),
    ("m2m", "position_embd"),
    ("marian", "position_embd"),
    ("pegasus", "position_embd"),
    ("whisper", "enc.position_embd"),
];

/// A golden model for training, with its reference results.
pub struct GradientCase {
    /// The packed model.
    pub file: File,
    /// Its training program.
    pub program: Program,
    /// The input batch.
    pub batch: TrainingBatch,
    /// The expected outputs, row by row.
    pub outputs: Vec<f32>,
}

impl GradientCase {
    /// Returns the names of the operations that use a weight, for messages.
    pub fn operations(&self, weight: usize) -> String {
        let nodes = self.program.graph.nodes.iter().filter(|node| node.op.weights().contains(&weight));
        let mut names: Vec<&str> = nodes.map(|node| node.op.name()).collect();
        names.dedup();
        names.join(", ")
    }
}

/// Returns the folder of a golden model.
pub fn folder(name: &str) -> PathBuf {
    let decoder = golden::NAMES.contains(&name);
    paths::data(if decoder { "golden" } else { "golden-texts" }).join(name)
}

/// Reads a model and its input.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn load(name: &str) -> GradientCase {
    let mut batch = TrainingBatch::default();
    let (file, outputs);
    if golden::NAMES.contains(&name) {
        let golden = golden::load(name);
        golden.ids.iter().for_each(|ids| batch.decoder.push(ids, &[]));
        (file, outputs) = (golden.file, golden.logits.concat());
    } else {
        let golden = texts::load(name, None);
        for text in &golden.texts {
            let first = batch.encoder.rows.len();
            batch.encoder.push(&text.ids, &text.token_type_ids);
            text.global_positions.iter().for_each(|&place| batch.encoder.rows[first + place].marked = true);
        }
        golden.written.iter().for_each(|ids| batch.decoder.push(ids, &[]));
        outputs = if golden.written.is_empty() { golden.read.concat() } else { golden.scores.concat() };
        file = golden.file;
        let features: Vec<&[f32]> = golden.texts.iter().map(|text| &text.features[..]).collect();
        if features.iter().any(|features| !features.is_empty()) {
            listen(&file, &features, &mut batch.encoder);
        }
    }
    let program = Program::of_file(&file).expect("the model has a program");
    let wanted = program.side();
    let side = if batch.decoder.rows.is_empty() { &mut batch.encoder } else { &mut batch.decoder };
    if program.graph.head == OutputHead::Class {
        side.output_rows = side.spans().map(|span| span.start).collect();
    } else {
        side.output_all();
    }
    assert_eq!(program.row_count(program.graph.output, &batch), wanted.sequences(&batch).output_rows.len());
    GradientCase { file, program, batch, outputs }
}

/// Adds the encoder rows of audio features.
fn listen(file: &File, features: &[&[f32]], reader: &mut BatchSequences) {
    let program = Program::of_file(file).expect("the model has a program");
    let frames = program.graph.values.iter().find(|value| value.rows == RowKind::Frames);
    let columns = frames.map_or(1, |value| value.columns);
    *reader = BatchSequences::default();
    for features in features {
        let first = reader.frame_count();
        let count = features.len() / columns;
        reader.features.extend_from_slice(features);
        reader.push(&vec![0; count.div_ceil(2)], &[]);
        reader.sequences.last_mut().expect("it was pushed").frames = first..first + count;
    }
}

/// A loss that is the sum of all outputs, each weighted by its position.
pub struct Direction;

impl Direction {
    fn at(row: usize, column: usize, columns: usize) -> f64 {
        (0.3 * row as f64 + 1.7 * column as f64).cos() / (columns as f64).sqrt()
    }
}

impl<T: Real> Loss<T> for Direction {
    fn add(
        &self,
        outputs: &LossRows<'_, T>,
        _: &Targets,
        scale: f64,
        gradient: &mut [T],
    ) -> siskin::Result<LossSum> {
        let mut loss = 0.0;
        for (index, (gradient, x)) in gradient.iter_mut().zip(outputs.numbers).enumerate() {
            let (row, column) = (outputs.first + index / outputs.columns, index % outputs.columns);
            let factor = Self::at(row, column, outputs.columns);
            *gradient = T::of(factor * scale);
            loss += factor * x.f64();
        }
        Ok(LossSum { loss, weight: 1.0, ..LossSum::default() })
    }
}

/// Returns the sampled positions of a tensor.
fn places(length: usize) -> impl Iterator<Item = usize> {
    let count = length.min(KEPT);
    (0..count).map(move |index| index * length / count)
}

/// Returns the sample of a gradient: its norm, its largest magnitude, and some of its elements.
pub fn sample<T: Real>(gradient: &[T]) -> Vec<f64> {
    let length = gradient.iter().map(|x| x.f64() * x.f64()).sum::<f64>().sqrt();
    let largest = gradient.iter().map(|x| x.f64().abs()).fold(0.0, f64::max);
    [length, largest].into_iter().chain(places(gradient.len()).map(|place| gradient[place].f64())).collect()
}

/// Returns the samples of all gradients of a model.
///
/// # Panics
/// If its file is missing or corrupt.
pub fn reference(name: &str) -> HashMap<String, Vec<f32>> {
    let path = paths::data("gradients").join(format!("{name}.safetensors"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; docs/adding-to-the-trainer.md says how to make it", path.display())
    });
    let tensors = safetensors::parse(Bytes::new(bytes)).expect("reference gradients parse");
    let numbers = |data: &Bytes| data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    tensors.into_iter().map(|(name, tensor)| (name, numbers(&tensor.data))).collect()
}

/// Writes samples of the gradients in `folder`, which has the form of a model with gradients as weights: see
/// `golden-scripts/make_gradients.py`. Offsets that importing adds to weights are subtracted.
///
/// # Panics
/// If the folder is not such a model.
pub fn bless(name: &str, folder: &Path) {
    let case = load(name);
    let read = |folder: &Path| -> Parameters<f64> {
        let options = OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() };
        let file = open_any(folder, &options).expect("a folder of gradients packs");
        Parameters::read(&case.program.graph.weights, &file).expect("gradients have the model's shapes")
    };
    let gradients = read(folder);
    let zeros = folder.with_extension("zeros");
    std::fs::create_dir_all(&zeros).expect("a folder can be made");
    std::fs::copy(folder.join("config.json"), zeros.join("config.json")).expect("a copy can be made");
    let mut bytes = std::fs::read(folder.join("model.safetensors")).expect("there are weights");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    bytes[8 + header..].fill(0);
    std::fs::write(zeros.join("model.safetensors"), bytes).expect("zeros can be written");
    let offsets = read(&zeros);
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (gradient, offset) in gradients.list.iter().zip(&offsets.list) {
        let numbers: Vec<f64> = gradient.numbers.iter().zip(&offset.numbers).map(|(a, b)| a - b).collect();
        let start = data.len();
        let kept = sample(&numbers);
        data.extend(kept.iter().flat_map(|number| (*number as f32).to_le_bytes()));
        let entry = serde_json::json!({
            "dtype": "F32", "shape": [kept.len()], "data_offsets": [start, data.len()]
        });
        header.insert(gradient.name.clone(), entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    let out = paths::data("gradients");
    std::fs::create_dir_all(&out).expect("a folder can be made");
    std::fs::write(out.join(format!("{name}.safetensors")), file).expect("gradients can be written");
}
