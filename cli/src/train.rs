//! `siskin train` and `siskin eval`: learning from texts, as a TOML file says it.

use crate::interrupt;
use crate::options::OpenArgs;
use crate::output;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use siskin::file::AtomicFile;
use siskin::{Adapter, Error, ErrorKind, Result};
use siskin_trainer::events::Events;
use siskin_trainer::run::{Base, Config, Ended, Material, Progress, Run, Seen, Watcher};
use siskin_trainer::{export, tokenizer};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Train a model as a TOML file says; `siskin train resume CONFIG` goes on after a stop
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
    /// Go on where the newest checkpoint stands
    Resume(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// What to do: a TOML file, whose paths are seen from its own folder
    config: PathBuf,
    /// The model to write; else the config's name with .siskin
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Where checkpoints and the log go; else the config's name with .run
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Say what memory the run takes, and do not train
    #[arg(long)]
    memory: bool,
    /// Say with what `batch.rows` the run fits into so many MiB, and do not train
    #[arg(long, value_name = "MIB")]
    find_batch: Option<u64>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Measure how far off a model is on the validation texts of a training config
#[derive(clap::Args)]
pub(crate) struct EvalArgs {
    /// The config
    config: PathBuf,
    /// The model; else the one that the config's run wrote
    #[arg(short, long)]
    model: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

static STOP: AtomicBool = AtomicBool::new(false);

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let (run, resume) = match (&args.action, &args.run) {
        (Some(Action::Resume(run)), _) => (run, true),
        (None, Some(run)) => (run, false),
        (None, None) => return Err(Error::argument("CONFIG", "is missing")),
    };
    let config = read(&run.config)?;
    if let Some(limit) = run.find_batch {
        return find_batch(config, &run.config, limit, run.json, open);
    }
    let output = run.output.clone().unwrap_or_else(|| run.config.with_extension("siskin"));
    let folder = run.folder.clone().unwrap_or_else(|| run.config.with_extension("run"));
    let material = material(&config, open)?;
    let mut trained = Run::new(config, material, (!run.memory).then_some(folder.as_path()))?;
    if run.memory {
        return output::report(memory(&trained)?, run.json);
    }
    let mut watcher = Terminal::new(open, &folder)?;
    if resume && !trained.resume(&mut watcher)? {
        let message = "holds no checkpoint; start with `siskin train CONFIG`";
        return Err(Error::new(ErrorKind::Missing, folder.display().to_string(), message));
    }
    if !resume && siskin_trainer::checkpoint::Folder::new(&folder, 1)?.steps()?.last().is_some() {
        let message = "holds the checkpoints of a run; go on with `siskin train resume CONFIG`, or remove it";
        return Err(Error::argument(folder.display().to_string(), message));
    }
    interrupt::listen_for(&STOP)?;
    let ended = trained.train(&STOP, &mut watcher)?;
    watcher.bar.finish_and_clear();
    if ended == Ended::Stopped {
        let message = format!("stopped after step {}; go on with `siskin train resume`", trained.steps());
        return Err(Error::new(ErrorKind::Cancelled, "", message));
    }
    write(&mut trained, &output)?;
    let last = watcher.last;
    let entries = vec![
        ("output", output.display().to_string().into()),
        ("steps", trained.steps().into()),
        ("loss", last.loss.into()),
        ("validation_loss", watcher.seen.map_or(Value::Null, |seen| seen.loss.into())),
        ("ended", json!(format!("{ended:?}"))),
    ];
    output::report(entries, run.json)
}

/// Writes what a run gave: a model, or adapters by themselves.
fn write(run: &mut Run, output: &Path) -> Result<()> {
    let out = AtomicFile::create(output)?;
    match run.adapter()? {
        Some(adapter) => {
            let frame = &run.material().frame;
            adapter.write(frame.name.as_deref(), frame.provenance.clone(), out)?.commit()
        }
        None => {
            let parameters = run.result()?;
            export::write(&run.material().frame, &parameters, out)?.commit()
        }
    }
}

pub(crate) fn evaluate(args: &EvalArgs, open: &OpenArgs) -> Result<()> {
    let mut config = read(&args.config)?;
    let model = args.model.clone().unwrap_or_else(|| args.config.with_extension("siskin"));
    // What was rounded in each step is rounded in the file.
    config.quantise = None;
    let adapter = if config.export.adapter { Some(Adapter::open(&model)?) } else { None };
    if adapter.is_none() {
        config.model.from = Some(model.display().to_string());
    }
    let material = material(&config, open)?;
    let mut run = Run::new(config, material, None)?;
    if let Some(adapter) = adapter {
        run.take_adapter(&adapter).map_err(|error| error.within(&model.display().to_string()))?;
    }
    let sum = run.evaluate()?.ok_or_else(|| {
        Error::argument("data", "names no validation texts; give data.validation or data.share")
    })?;
    let entries = vec![
        ("loss", output::round(sum.mean(), 6).into()),
        ("perplexity", output::round(sum.mean().exp(), 4).into()),
        ("right", output::round(sum.right / sum.weight, 6).into()),
        ("targets", sum.weight.into()),
    ];
    output::report(entries, args.json)
}

/// The config, its paths seen from here.
fn read(path: &Path) -> Result<Config> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(&place, &error))?;
    let mut config = Config::parse(&text).map_err(|error| error.within(&place))?;
    let home = path.parent().unwrap_or(Path::new(""));
    let seen = |name: &mut String| *name = home.join(&*name).display().to_string();
    config.model.from.iter_mut().chain(&mut config.model.tokenizer).for_each(seen);
    config.data.training.iter_mut().chain(&mut config.data.validation).for_each(seen);
    Ok(config)
}

/// Opens what a config names.
fn material(config: &Config, open: &OpenArgs) -> Result<Material> {
    let model = &config.model;
    let base = match (&model.from, &model.family) {
        (Some(path), _) => Base::File(Box::new(open.file(Path::new(path))?)),
        (None, Some(_)) => Base::New { tokenizer: new_tokenizer(config)?, template: None },
        (None, None) => {
            let message =
                "says neither `from`, a model, nor `family`, for one that begins with random numbers";
            return Err(Error::argument("model", message));
        }
    };
    Material::new(config, base)
}

fn new_tokenizer(config: &Config) -> Result<Vec<u8>> {
    if let Some(path) = &config.model.tokenizer {
        return Ok(siskin_convert::tokenizer_section(path)?.to_vec());
    }
    let vocabulary = config.model.vocabulary.ok_or_else(|| {
        let message = "is missing; name a model that has one, or the `vocabulary` of one to be learnt";
        Error::argument("model.tokenizer", message)
    })?;
    let read = |path: &String| std::fs::read_to_string(path).map_err(|error| Error::io(path, &error));
    let texts = config.data.training.iter().map(read).collect::<Result<Vec<_>>>()?;
    let learnt = tokenizer::learn(texts.iter().map(String::as_str), vocabulary, &["<|endoftext|>"])?;
    siskin_convert::tokenizer_of_json(learnt.to_string().as_bytes())
}

fn memory(run: &Run) -> Result<Vec<(&'static str, Value)>> {
    let parts = run.memory()?;
    Ok(vec![
        ("parameters", parts.parameters.into()),
        ("gradients", parts.gradients.into()),
        ("optimiser", parts.optimiser.into()),
        ("activations", parts.activations.into()),
        ("scratch", parts.scratch.into()),
        ("total", parts.total().into()),
    ])
}

/// The largest `batch.rows` that fits.
fn find_batch(config: Config, place: &Path, limit: u64, json: bool, open: &OpenArgs) -> Result<()> {
    let limit = usize::try_from(limit << 20).unwrap_or(usize::MAX);
    let material = material(&config, open)?;
    let run = Run::new(config, material, None)?;
    let takes = |rows: usize| run.memory_with(rows).map(|parts| parts.total());
    let (mut fits, mut too_many) = (0, 1 << 20);
    while too_many - fits > 1.max(fits / 64) {
        let rows = fits + (too_many - fits) / 2;
        if takes(rows)? <= limit { fits = rows } else { too_many = rows }
    }
    if fits == 0 {
        let message = format!("{}: even a batch of one row takes more", place.display());
        return Err(Error::new(ErrorKind::Memory, "--find-batch", message));
    }
    let total = takes(fits)?;
    output::report(vec![("rows", fits.into()), ("bytes", total.into())], json)
}

/// Shows how a run goes, and writes its log.
struct Terminal<'a> {
    open: &'a OpenArgs,
    bar: ProgressBar,
    log: File,
    events: Events,
    last: Progress,
    seen: Option<Seen>,
}

impl<'a> Terminal<'a> {
    /// The log and the events go to `folder`.
    fn new(open: &'a OpenArgs, folder: &Path) -> Result<Self> {
        let log = folder.join("log.jsonl");
        let place = log.display().to_string();
        std::fs::create_dir_all(folder).map_err(|error| Error::io(&place, &error))?;
        let log = OpenOptions::new().create(true).append(true).open(log);
        let log = log.map_err(|error| Error::io(&place, &error))?;
        let events = Events::create(folder)?;
        let bar = if open.quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = "{bar:24} {pos}/{len} steps, {eta} left, {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Ok(Self { open, bar, log, events, last: Progress::default(), seen: None })
    }

    fn write(&mut self, value: &Value, step: u64, numbers: &[(&str, f64)]) {
        // A log that cannot be written ends no run.
        let _ = writeln!(self.log, "{value}");
        let _ = self.events.add(step, numbers);
    }
}

impl Watcher for Terminal<'_> {
    fn step(&mut self, progress: &Progress) {
        self.bar.set_length(progress.steps);
        self.bar.set_position(progress.step);
        let rate = progress.rows as f64 / progress.seconds.max(1e-9);
        self.bar.set_message(format!("loss {:.4}, {rate:.0} tokens/s", progress.loss));
        let numbers = [("loss", progress.loss), ("rate", progress.rate), ("gradient", progress.norm)];
        self.write(&progress.json(), progress.step, &numbers);
        self.last = *progress;
    }

    fn look(&mut self, seen: &Seen) {
        let best = if seen.best { ", the best so far" } else { "" };
        let line = format!("step {}: validation loss {:.4}{best}", seen.step, seen.loss);
        self.bar.suspend(|| output::note(self.open, line));
        let line = json!({"step": seen.step, "validation_loss": seen.loss, "right": seen.right});
        self.write(&line, seen.step, &[("validation_loss", seen.loss), ("right", seen.right)]);
        self.seen = Some(*seen);
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| output::warn(text));
    }
}
