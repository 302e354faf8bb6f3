//! `siskin train` and `siskin eval`: training and evaluation from a TOML config.

mod checks;
mod terminal;

use crate::options::{OpenArgs, files_of};
use crate::output;
use crate::table::{self, ReportField};
use crate::{input_path, interrupt};
use clap::Subcommand;
use serde_json::{Value, json};
use siskin::file::{AtomicFile, File};
use siskin::{Adapter, Error, ErrorKind, Result};
use siskin_trainer::checkpoint::CheckpointFolder;
use siskin_trainer::report;
use siskin_trainer::run::{self, OpenedBase, Run, RunCallbacks, RunConfig, RunEnd, RunSetup};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use terminal::Terminal;

/// Train a model from a TOML config (subcommands: resume, export, report, pack)
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: Option<RunArgs>,
}

#[derive(Subcommand)]
enum Action {
    /// Resume a run from its newest checkpoint
    Resume(RunArgs),
    /// Export the model of an unfinished run, or a different checkpoint of a finished one
    Export(ExportArgs),
    /// Regenerate the report of a run
    Report {
        /// The folder of the run, such as mini-gpt.run
        folder: PathBuf,
    },
    /// Tokenize the texts of a config into a packed token file, so that runs do not have to re-tokenize them
    Pack(PackArgs),
}

#[derive(clap::Args)]
struct PackArgs {
    /// The training config
    config: PathBuf,
    /// Output file; default: the config's name with .tokens. Validation texts get the extension .validation.tokens
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct RunArgs {
    /// The training config, a TOML file; its paths are relative to its own folder
    config: PathBuf,
    /// Output model; default: the config's name with .siskin
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Folder for checkpoints and the log; default: the config's name with .run
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Print the run's memory requirements, without training
    #[arg(long)]
    memory: bool,
    /// Run sanity checks on model and data, without training
    #[arg(long)]
    check: bool,
    /// Profile N steps: writes trace.json and profile.txt to the run's folder
    #[arg(long, value_name = "N")]
    profile: Option<u64>,
    /// Find the largest `batch.max_tokens` that fits in free memory, without training
    #[arg(long)]
    find_batch_size: bool,
    /// With --find-batch-size: use this memory limit in MiB instead of free memory
    #[arg(long, value_name = "MIB", requires = "find_batch_size")]
    memory_limit: Option<u64>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ExportArgs {
    /// The training config of the run
    config: PathBuf,
    /// Output model; default: the config's name with .siskin
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Folder of the run's checkpoints; default: the config's name with .run
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Weights to write: those of the newest checkpoint (`last`) or of the best validation (`best`); default: from
    /// the config
    #[arg(long, value_name = "WHICH")]
    weights: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Evaluate a model on the validation texts of a training config
#[derive(clap::Args)]
pub(crate) struct EvalArgs {
    /// The training config
    config: PathBuf,
    /// The model; default: the output of the config's run
    #[arg(short, long)]
    model: Option<PathBuf>,
    /// Number of batches to evaluate; 0 means all; default: validation.batches in the config
    #[arg(long, value_name = "N")]
    batches: Option<usize>,
    /// Device: cpu or cuda, regardless of the device that the config trains on; the CPU computes in f32
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

static STOP: AtomicBool = AtomicBool::new(false);

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let (run, resume) = match (&args.action, &args.run) {
        (Some(Action::Report { folder }), _) => {
            let path = siskin_trainer::report::make(folder)?;
            return output::line(path.display());
        }
        (Some(Action::Export(args)), _) => return export(args, open),
        (Some(Action::Pack(args)), _) => return pack(args, open),
        (Some(Action::Resume(run)), _) => (run, true),
        (None, Some(run)) => (run, false),
        (None, None) => return Err(Error::argument("CONFIG", "missing")),
    };
    let (config, text) = read(&run.config)?;
    let (checked, steps) = (config.check, config.steps);
    let folder = run_folder(run.folder.as_deref(), &run.config)?;
    let output = Output::of(run.output.as_deref(), &run.config, &config, &folder)?;
    let has_checkpoints = CheckpointFolder::is_used(&folder)?;
    let trains = !run.memory && !run.check && !run.find_batch_size;
    if trains {
        // Fail before training, not after it.
        output.create().map(drop)?;
    }
    if has_checkpoints && trains && !resume {
        let message = "the folder holds the checkpoints of a run; continue it with `siskin train resume CONFIG`, or \
                       remove it";
        return Err(Error::argument(folder.display().to_string(), message));
    }
    let location = run.config.display().to_string();
    let within = |error: Error| error.within(&location);
    let setup = setup(&config, &folder, has_checkpoints, open).map_err(within)?;
    let mut trained = Run::new(config, setup, trains.then_some(folder.as_path())).map_err(within)?;
    if run.find_batch_size {
        let limit = run.memory_limit.map(|limit| usize::try_from(limit << 20).unwrap_or(usize::MAX));
        let (max_tokens, parts) = trained.find_batch_size(limit).map_err(within)?;
        let fields = [("max_tokens", "max_tokens", "tokens"), ("bytes", "memory", "bytes")];
        let entries = vec![("max_tokens", max_tokens.into()), ("bytes", parts.total().into())];
        return table::print(entries, &fields, run.json);
    }
    if run.memory {
        return print_memory(&trained, run.json);
    }
    if run.check {
        return checks::full(&mut trained, run.json);
    }
    let peak_flops = trained.peak_flops()?;
    let mut callbacks = Terminal::new(open, &folder, peak_flops)?;
    if resume && !trained.resume(&mut callbacks)? {
        let message = "no checkpoint; start with `siskin train CONFIG`";
        return Err(Error::new(ErrorKind::Missing, folder.display().to_string(), message));
    }
    if !resume && checked {
        checks::brief(&mut trained, open)?;
    }
    if let Some(count) = run.profile.filter(|count| *count > 0) {
        // Skip the first step, which runs with cold caches.
        trained.profile(trained.steps() + 2, count);
    }
    report::describe(&folder, &text, &trained.memory()?, peak_flops, steps)?;
    interrupt::listen_for(&STOP)?;
    let ended = trained.train(&STOP, &mut callbacks)?;
    callbacks.bar.finish_and_clear();
    callbacks.report();
    if ended == RunEnd::Interrupted {
        let message = format!("stopped after step {}; continue with `siskin train resume`", trained.steps());
        return Err(Error::new(ErrorKind::Canceled, "", message));
    }
    let (steps, chosen) = (trained.steps(), trained.load_export_weights()?);
    trained.write(output.create()?)?;
    let entries = vec![
        ("output", output.path.display().to_string().into()),
        ("steps", steps.into()),
        ("exported_step", chosen.into()),
        ("loss", callbacks.last.map_or(Value::Null, |last| last.loss.into())),
        ("validation_loss", callbacks.validation.map_or(Value::Null, |validation| validation.loss.into())),
        ("end_reason", json!(ended.name())),
    ];
    output::report(entries, run.json)
}

/// Writes the model of a run from its checkpoints.
fn export(args: &ExportArgs, open: &OpenArgs) -> Result<()> {
    let (mut config, _) = read(&args.config)?;
    // Exporting needs no GPU.
    config.use_cpu();
    config.export.weights = args.weights.clone().or(config.export.weights);
    let folder = run_folder(args.folder.as_deref(), &args.config)?;
    let output = Output::of(args.output.as_deref(), &args.config, &config, &folder)?;
    output.create().map(drop)?;
    if !folder.is_dir() {
        let message = "missing; train first, or name the run's folder with --folder";
        return Err(Error::new(ErrorKind::Missing, folder.display().to_string(), message));
    }
    let location = args.config.display().to_string();
    let within = |error: Error| error.within(&location);
    let setup = setup(&config, &folder, true, open).map_err(within)?;
    let mut run = Run::new(config, setup, Some(&folder)).map_err(within)?;
    if !run.resume(&mut Warnings)? {
        let message = "no checkpoint; start with `siskin train CONFIG`";
        return Err(Error::new(ErrorKind::Missing, folder.display().to_string(), message));
    }
    let chosen = run.load_export_weights()?;
    run.write(output.create()?)?;
    let path = output.path.display().to_string();
    output::report(vec![("output", path.into()), ("exported_step", chosen.into())], args.json)
}

/// Prints warnings only.
struct Warnings;

impl RunCallbacks for Warnings {
    fn warning(&mut self, text: &str) {
        output::warn(text);
    }
}

/// Writes the texts of a config as packed tokens.
fn pack(args: &PackArgs, open: &OpenArgs) -> Result<()> {
    let (config, _) = read(&args.config)?;
    let output = args.output.clone().unwrap_or_else(|| args.config.with_extension("tokens"));
    if args.output.is_none() && output.is_symlink() {
        let message = "this is a symbolic link; remove it, or name the output with -o";
        return Err(Error::argument(output.display().to_string(), message));
    }
    let folder = args.config.with_extension("run");
    let base = base(&config, &folder, CheckpointFolder::is_used(&folder)?, open)?;
    let (training, validation) = run::pack(&config, &base, &output)?;
    let mut entries = vec![
        ("output", training.path.display().to_string().into()),
        ("documents", training.documents.into()),
        ("tokens", training.tokens.into()),
    ];
    if let Some(validation) = validation {
        entries.extend([
            ("validation_output", validation.path.display().to_string().into()),
            ("validation_documents", validation.documents.into()),
            ("validation_tokens", validation.tokens.into()),
        ]);
    }
    output::report(entries, args.json)
}

/// The output path of a model.
struct Output {
    path: PathBuf,
    /// True if the user named the path. A path derived from the config only replaces a trained model.
    named: bool,
    /// The files that the run reads, and those of its folder; none may be overwritten.
    inputs: Vec<PathBuf>,
}

impl Output {
    fn of(named: Option<&Path>, file: &Path, config: &RunConfig, folder: &Path) -> Result<Self> {
        // The folder holds checkpoints, tokenizer and log.
        let inputs = run::inputs(config).map_err(|error| error.within(&file.display().to_string()))?;
        let inputs = inputs.into_iter().chain([file.to_owned(), folder.to_owned()]);
        let inputs = inputs.flat_map(|path| files_of(&path)).collect();
        let path = named.map_or_else(|| file.with_extension("siskin"), Path::to_owned);
        Ok(Self { path, named: named.is_some(), inputs })
    }

    fn create(&self) -> Result<AtomicFile> {
        if self.named {
            return AtomicFile::create_from(&self.path, &self.inputs);
        }
        let another = |error: Error| {
            let message = format!("{}; name another file with -o", error.message());
            Error::new(error.kind(), error.location(), message)
        };
        AtomicFile::check(&self.path, &self.inputs).map_err(another)?;
        AtomicFile::create_own(&self.path, is_trainer_output).map_err(another)
    }
}

/// Returns true if the file is a model written by the trainer.
fn is_trainer_output(file: std::fs::File) -> bool {
    let tool = |file: File| file.metadata().provenance.get("tool").and_then(Value::as_str).map(str::to_owned);
    let tool = File::open_descriptor(file, 0, None).ok().and_then(tool);
    tool.is_some_and(|tool| tool.starts_with("siskin-trainer "))
}

/// Returns the folder of a run. A symbolic link is only followed if the user named it.
fn run_folder(named: Option<&Path>, config: &Path) -> Result<PathBuf> {
    let path = named.map_or_else(|| config.with_extension("run"), Path::to_owned);
    if named.is_none() && path.is_symlink() {
        let message = "this is a symbolic link; remove it, or name it with --folder to follow it";
        return Err(Error::argument(path.display().to_string(), message));
    }
    Ok(path)
}

pub(crate) fn evaluate(args: &EvalArgs, open: &OpenArgs) -> Result<()> {
    let (mut config, _) = read(&args.config)?;
    let model = args.model.clone().unwrap_or_else(|| args.config.with_extension("siskin"));
    config.validation.batches = args.batches.unwrap_or(config.validation.batches);
    match args.device.as_deref() {
        Some("cpu") => config.use_cpu(),
        Some(other) => config.device = other.to_owned(),
        None => {}
    }
    // The file of a model trained with QAT already holds rounded weights.
    config.qat = None;
    let adapter = if config.export.adapter { Some(Adapter::open(&model)?) } else { None };
    if adapter.is_none() {
        config.model.from = Some(model.display().to_string());
    }
    let setup = RunSetup::for_evaluation(&config, base(&config, Path::new(""), false, open)?)?;
    let setup = with_teacher(setup, &config, open)?;
    let sum = run::evaluate(&config, &setup, adapter.as_ref()).map_err(|error| match adapter {
        Some(_) => error.within(&model.display().to_string()),
        None => error,
    })?;
    let sum = sum.ok_or_else(|| {
        Error::argument("data", "no validation texts; set data.validation or data.validation_split")
    })?;
    let entries = vec![
        ("loss", output::round(sum.mean(), 6).into()),
        ("perplexity", output::round(sum.mean().exp(), 4).into()),
        ("accuracy", output::round(sum.correct / sum.weight, 6).into()),
        ("targets", sum.weight.into()),
    ];
    output::report(entries, args.json)
}

/// Reads a config and its text.
fn read(path: &Path) -> Result<(RunConfig, String)> {
    input_path::check_file(path)?;
    RunConfig::open(path)
}

/// Opens the base, the data and the teacher of a config.
fn setup(config: &RunConfig, folder: &Path, resumes: bool, open: &OpenArgs) -> Result<RunSetup> {
    let base = base(config, folder, resumes, open)?;
    with_teacher(RunSetup::new(config, base)?, config, open)
}

/// Opens the teacher model, if the config names one.
fn with_teacher(setup: RunSetup, config: &RunConfig, open: &OpenArgs) -> Result<RunSetup> {
    match &config.teacher {
        Some(teacher) => setup.with_teacher(&open.file(Path::new(&teacher.from))?),
        None => Ok(setup),
    }
}

/// Opens the base of a config; a tokenizer trained on its texts is stored in `folder`.
fn base(config: &RunConfig, folder: &Path, resumes: bool, open: &OpenArgs) -> Result<OpenedBase> {
    let model = &config.model;
    match (&model.from, &model.family) {
        (Some(path), _) => Ok(OpenedBase::File(Box::new(open.file(Path::new(path))?))),
        (None, Some(_)) => {
            Ok(OpenedBase::New { tokenizer: new_tokenizer(config, folder, resumes)?, template: None })
        }
        (None, None) => {
            let message = "set `from` (a model to fine-tune) or `family` (a new model with random weights)";
            Err(Error::argument("model", message))
        }
    }
}

/// Returns the tokenizer of a model that starts from random weights.
fn new_tokenizer(config: &RunConfig, folder: &Path, resumes: bool) -> Result<Vec<u8>> {
    match &config.model.tokenizer {
        Some(path) => Ok(siskin_convert::tokenizer_section(path)?.to_vec()),
        None => siskin_convert::tokenizer_of_json(&run::trained_tokenizer(config, folder, resumes)?),
    }
}

/// Prints the memory of a run by part: in MiB, or in bytes as JSON.
fn print_memory(run: &Run, as_json: bool) -> Result<()> {
    let parts = run.memory()?;
    let entries = parts.list().into_iter().chain([("total", parts.total())]);
    if as_json {
        let fields: serde_json::Map<_, _> =
            entries.map(|(name, bytes)| (format!("{name}_bytes"), bytes.into())).collect();
        return output::json(&Value::Object(fields));
    }
    let mib = |bytes: usize| json!((bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0);
    let names: Vec<ReportField> = parts
        .list()
        .map(|(name, _)| (name, name, "MiB"))
        .into_iter()
        .chain([("total", "total", "MiB")])
        .collect();
    table::print(entries.map(|(name, bytes)| (name, mib(bytes))).collect(), &names, false)
}
