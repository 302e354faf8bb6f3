//! Trains a causal model from a config, and writes what another trainer needs to repeat the run.
//!
//! `train_beside CONFIG FOLDER`: paths in CONFIG are relative to the current folder. Writes to FOLDER: `start/`, the
//! initial model as safetensors; `batches.jsonl`, the batches of each step; `validation.jsonl`, the validation batches;
//! `siskin.jsonl`, the loss of each step and of each validation; `end.siskin`, the trained model. The tokenizer is that
//! of the model that the config names, or is trained on its training texts. At the end, and with `--evaluate FOLDER`
//! alone, runs `end.siskin` on `validation.jsonl` with the runtime and prints the loss.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "this is what it is for")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use siskin::file::AtomicFile;
use siskin::{Error, Model, Result, SessionOptions};
use siskin_convert::export::{self as formats, ExportOptions};
use siskin_trainer::data::Position;
use siskin_trainer::export;
use siskin_trainer::run::{
    OpenedBase, Run, RunCallbacks, RunConfig, RunSetup, StepReport, Validation, trained_tokenizer,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [word, folder] if word == "--evaluate" => evaluate_with_runtime(Path::new(folder)),
        [config, folder] => beside(config, Path::new(folder)),
        _ => {
            eprintln!("usage: train_beside CONFIG FOLDER, or train_beside --evaluate FOLDER");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    File::create(path).map(BufWriter::new).map_err(|error| Error::io(path.display().to_string(), &error))
}

fn beside(config: &str, folder: &Path) -> Result<()> {
    let config = RunConfig::parse(&fs::read_to_string(config).map_err(|error| Error::io(config, &error))?)?;
    fs::create_dir_all(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
    let setup =
        RunSetup::new(&config, OpenedBase::New { tokenizer: section(&config, folder)?, template: None })?;
    let limit = usize::try_from(config.steps).unwrap_or(usize::MAX);
    let accumulate = config.batch.gradient_accumulation_steps.max(1);
    let loader = setup.batches(&config, Position::default())?;
    write_batches(&folder.join("batches.jsonl"), loader.take(limit.saturating_mul(accumulate)))?;
    if let Some(loader) = setup.validation_batches(&config)? {
        write_batches(&folder.join("validation.jsonl"), loader)?;
    }
    let mut run = Run::new(config, setup, None)?;
    let start = folder.join("start.siskin");
    write_model(&mut run, &start)?;
    let model = siskin::file::File::open(&start)?;
    let place = folder.join("start");
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    formats::export(&model, formats::format_for(Some("safetensors"), &place)?, &place, &options)?;
    let mut log = Log(create(&folder.join("siskin.jsonl"))?);
    run.train(&AtomicBool::new(false), &mut log)?;
    write_model(&mut run, &folder.join("end.siskin"))?;
    evaluate_with_runtime(folder)
}

/// Prints the validation loss that the runtime computes from the trained file and the validation batches.
fn evaluate_with_runtime(folder: &Path) -> Result<()> {
    let path = folder.join("validation.jsonl");
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let broken = || Error::corrupt(path.display().to_string(), "was not written by train_beside");
    let model = Model::open(folder.join("end.siskin"))?;
    let mut session = model.session(SessionOptions::default())?;
    let (mut loss, mut weight) = (0.0, 0.0);
    for line in text.lines() {
        let batch = ValidationBatch::parse(line).ok_or_else(broken)?;
        let mut first = 0;
        for ids in &batch.texts {
            session.reset();
            session.score(ids, &mut |row, scores| {
                if let Some((target, own)) = batch.goals.get(&(first + row)) {
                    loss += own * negative_log_probability(scores, *target);
                    weight += own;
                }
            })?;
            first += ids.len();
        }
    }
    if weight == 0.0 {
        return Err(broken());
    }
    let mean = loss / weight;
    println!("validation loss of the exported file in the runtime: {mean:.6}, perplexity {:.4}", mean.exp());
    Ok(())
}

/// A line written by [`write_batches`]: sequences, and the targets of rows with their weights.
struct ValidationBatch {
    texts: Vec<Vec<u32>>,
    goals: HashMap<usize, (u32, f64)>,
}

impl ValidationBatch {
    fn parse(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let list = |name: &str| line[name].as_array();
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let text = |text: &Value| text.as_array()?.iter().map(id).collect();
        let texts = list("texts")?.iter().map(text).collect::<Option<_>>()?;
        let rows = list("output_rows")?.iter().zip(list("targets")?).zip(list("weights")?);
        let goal = |((row, target), weight): ((&Value, &Value), &Value)| {
            Some((usize::try_from(row.as_u64()?).ok()?, (id(target)?, weight.as_f64()?)))
        };
        Some(Self { texts, goals: rows.map(goal).collect::<Option<_>>()? })
    }
}

/// Returns the negative log-probability of a token.
fn negative_log_probability(scores: &[f32], token: u32) -> f64 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from(score - largest).exp()).sum();
    sum.ln() - f64::from(scores.get(token as usize).map_or(f32::NAN, |score| score - largest))
}

fn section(config: &RunConfig, folder: &Path) -> Result<Vec<u8>> {
    match &config.model.tokenizer {
        Some(path) => Ok(siskin_convert::tokenizer_section(path)?.to_vec()),
        None => siskin_convert::tokenizer_of_json(&trained_tokenizer(config, folder, false)?),
    }
}

fn write_model(run: &mut Run, path: &Path) -> Result<()> {
    let parameters = run.result()?;
    export::write(&run.setup().file_contents, &parameters, AtomicFile::create(path)?)?.commit()
}

fn write_batches(
    path: &Path,
    steps: impl Iterator<Item = Result<siskin_trainer::data::LoadedBatch>>,
) -> Result<()> {
    let failed = |error: std::io::Error| Error::io(path.display().to_string(), &error);
    let mut file = create(path)?;
    for step in steps {
        let step = step?;
        let decoder = &step.batch.decoder;
        let texts: Vec<Vec<u32>> = decoder
            .spans()
            .map(|span| decoder.rows[span.clone()].iter().map(|row| row.token).collect())
            .collect();
        let line = json!({"texts": texts, "output_rows": decoder.output_rows, "targets": step.targets.ids,
            "weights": step.targets.weights});
        writeln!(file, "{line}").map_err(failed)?;
    }
    file.flush().map_err(failed)
}

struct Log(BufWriter<File>);

impl RunCallbacks for Log {
    fn step(&mut self, progress: &StepReport) {
        let _ = writeln!(self.0, "{}", progress.json()).and_then(|()| self.0.flush());
    }

    fn validation(&mut self, validation: &Validation) {
        let line = json!({"step": validation.step, "validation_loss": validation.loss});
        let _ = writeln!(self.0, "{line}").and_then(|()| self.0.flush());
    }
}
