//! Trains a causal model as a config says, and leaves what another trainer needs to do the same.
//!
//! `train_beside CONFIG FOLDER`: paths in CONFIG are seen from here. FOLDER gets `start/`, the model as it begins, in
//! safetensors; `batches.jsonl`, what each step is made of; `validation.jsonl`, the same of the texts that are not trained
//! on; `siskin.jsonl`, the loss of each step and of each look; `end.siskin`, the trained model. Tokens are those of the
//! model that the config names, or learnt from its training texts.

#![allow(clippy::print_stderr, reason = "this is what it is for")]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use serde_json::json;
use siskin::file::AtomicFile;
use siskin::{Error, Result};
use siskin_convert::export::{self as formats, ExportOptions};
use siskin_trainer::data::Position;
use siskin_trainer::export;
use siskin_trainer::run::{Base, Config, Material, Progress, Run, Seen, Watcher, learnt_tokenizer};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, folder] = arguments.as_slice() else {
        eprintln!("usage: train_beside CONFIG FOLDER");
        return ExitCode::from(2);
    };
    match beside(config, Path::new(folder)) {
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
    let config = Config::parse(&fs::read_to_string(config).map_err(|error| Error::io(config, &error))?)?;
    fs::create_dir_all(folder).map_err(|error| Error::io(folder.display().to_string(), &error))?;
    let material =
        Material::new(&config, Base::New { tokenizer: section(&config, folder)?, template: None })?;
    let limit = usize::try_from(config.steps).unwrap_or(usize::MAX);
    let accumulate = config.batch.accumulate.max(1);
    let loader = material.batches(&config, Position::default())?;
    write_batches(&folder.join("batches.jsonl"), loader.take(limit.saturating_mul(accumulate)))?;
    if let Some(loader) = material.validation_batches(&config)? {
        write_batches(&folder.join("validation.jsonl"), loader)?;
    }
    let mut run = Run::new(config, material, None)?;
    let start = folder.join("start.siskin");
    write_model(&mut run, &start)?;
    let model = siskin::file::File::open(&start)?;
    let place = folder.join("start");
    let options = ExportOptions { force: true, ..ExportOptions::default() };
    formats::export(&model, formats::format_for(Some("safetensors"), &place)?, &place, &options)?;
    let mut log = Log(create(&folder.join("siskin.jsonl"))?);
    run.train(&AtomicBool::new(false), &mut log)?;
    write_model(&mut run, &folder.join("end.siskin"))
}

fn section(config: &Config, folder: &Path) -> Result<Vec<u8>> {
    match &config.model.tokenizer {
        Some(path) => Ok(siskin_convert::tokenizer_section(path)?.to_vec()),
        None => siskin_convert::tokenizer_of_json(&learnt_tokenizer(config, folder, false)?),
    }
}

fn write_model(run: &mut Run, path: &Path) -> Result<()> {
    let parameters = run.result()?;
    export::write(&run.material().frame, &parameters, AtomicFile::create(path)?)?.commit()
}

fn write_batches(path: &Path, steps: impl Iterator<Item = Result<siskin_trainer::data::Step>>) -> Result<()> {
    let failed = |error: std::io::Error| Error::io(path.display().to_string(), &error);
    let mut file = create(path)?;
    for step in steps {
        let step = step?;
        let writer = &step.batch.writer;
        let texts: Vec<Vec<u32>> = writer
            .spans
            .iter()
            .map(|span| writer.rows[span.clone()].iter().map(|row| row.token).collect())
            .collect();
        let line = json!({"texts": texts, "wanted": writer.wanted, "targets": step.targets.ids,
            "weights": step.targets.weights});
        writeln!(file, "{line}").map_err(failed)?;
    }
    file.flush().map_err(failed)
}

struct Log(BufWriter<File>);

impl Watcher for Log {
    fn step(&mut self, progress: &Progress) {
        let _ = writeln!(self.0, "{}", progress.json()).and_then(|()| self.0.flush());
    }

    fn look(&mut self, seen: &Seen) {
        let line = json!({"step": seen.step, "validation_loss": seen.loss});
        let _ = writeln!(self.0, "{line}").and_then(|()| self.0.flush());
    }
}
