//! `siskin gate`: whether a model may replace another one.

mod choices;
mod online;
mod report;
mod speed;

use crate::input_path;
use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::scores::Scores;
use report::{GateCheck, Report};
use siskin::tokenizer::EncodeOptions;
use siskin::{Error, ErrorKind, Model, Result, SessionOptions};
use std::path::PathBuf;

/// Decide whether a model may replace another one, such as its quantized version
///
/// Compares perplexity, predictions, speed and memory of both models on a text. Prints each comparison with its bound; exits
/// with 0 if all are met, and with 1 if one is not. --online compares two running servers instead.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model in use
    #[arg(long, value_name = "MODEL", required_unless_present = "online", conflicts_with = "online")]
    baseline: Option<PathBuf>,
    /// The model that may replace it
    #[arg(long, value_name = "MODEL", required_unless_present = "online", conflicts_with = "online")]
    candidate: Option<PathBuf>,
    /// A text like those that the models process
    #[arg(long, value_name = "FILE", required_unless_present = "online", conflicts_with = "online")]
    data: Option<PathBuf>,
    /// Questions with several answers, one JSON object per line: {"context": …, "choices": […], "answer": 0}
    #[arg(long, value_name = "FILE")]
    choices: Option<PathBuf>,
    /// Chunk size in tokens
    #[arg(short, long, default_value_t = 512, value_name = "N")]
    context: usize,
    /// Maximum number of chunks; default: the whole text
    #[arg(long, value_name = "N")]
    chunks: Option<usize>,
    /// Maximum increase of the perplexity in percent
    #[arg(long, default_value_t = 0.5, value_name = "PERCENT")]
    max_perplexity_increase: f64,
    /// Maximum mean KL divergence in nats
    #[arg(long, default_value_t = 0.02, value_name = "NATS")]
    max_divergence: f64,
    /// Maximum KL divergence of 99% of the tokens in nats
    #[arg(long, default_value_t = 0.5, value_name = "NATS")]
    max_divergence_p99: f64,
    /// Minimum share of tokens with the same most likely token in percent
    #[arg(long, default_value_t = 99.0, value_name = "PERCENT")]
    min_agreement: f64,
    /// Maximum loss of accuracy on --choices in percentage points, beyond what chance explains
    #[arg(long, default_value_t = 0.0, value_name = "POINTS")]
    max_accuracy_loss: f64,
    /// Maximum ratio of the times, p95, to the first token and between tokens; 0 measures none
    #[arg(long, default_value_t = 1.05, value_name = "RATIO")]
    max_slowdown: f64,
    /// Maximum ratio of the memory
    #[arg(long, default_value_t = 1.0, value_name = "RATIO")]
    max_memory: f64,
    /// Also write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    online: online::OnlineArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// Both models.
struct Pair {
    baseline: Model,
    candidate: Model,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    if args.online.is_given() {
        return online::command(&args.online, args.json, open.quiet);
    }
    let pair = Pair {
        baseline: open.model(required(&args.baseline, "--baseline")?, &args.model_args)?,
        candidate: open.model(required(&args.candidate, "--candidate")?, &args.model_args)?,
    };
    let (before, after) = (pair.baseline.config().vocabulary, pair.candidate.config().vocabulary);
    if before != after {
        let message = format!("the vocabulary has {after} tokens, that of the baseline {before}");
        return Err(Error::argument("--candidate", message));
    }
    let mut report = Report::default();
    predictions(args, open, &pair, &mut report)?;
    if let Some(path) = &args.choices {
        choices::compare(&pair, path, args.max_accuracy_loss, &mut report)?;
    }
    if args.max_slowdown > 0.0 {
        speed::compare(&pair, args.max_slowdown, &mut report)?;
    }
    memory(args, &pair, &mut report)?;
    if let Some(path) = &args.junit {
        let written = std::fs::write(path, report.junit());
        written.map_err(|error| Error::io(path.display().to_string(), &error))?;
    }
    match args.json {
        true => output::json(&report.json())?,
        false => output::write(&report.text())?,
    }
    match report.has_passed() {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Numeric, "gate", "the candidate does not meet all bounds")),
    }
}

/// Returns an argument that is missing only with --online.
fn required<'a>(path: &'a Option<PathBuf>, option: &str) -> Result<&'a PathBuf> {
    path.as_ref().ok_or_else(|| Error::argument(option, "missing"))
}

/// Compares perplexities and predictions on the text.
fn predictions(args: &Args, open: &OpenArgs, pair: &Pair, report: &mut Report) -> Result<()> {
    if args.context < 4 {
        return Err(Error::argument("--context", format!("expected at least 4, got {}", args.context)));
    }
    let data = required(&args.data, "--data")?;
    let location = data.display().to_string();
    let text = input_path::read(data)?;
    let tokenizer = pair.baseline.tokenizer()?;
    let options = EncodeOptions { add_special: true, parse_special: false };
    let tokens = tokenizer.encode_bytes(&text, options).map_err(|error| error.within(&location))?;
    let count = (tokens.len() / args.context).min(args.chunks.unwrap_or(usize::MAX));
    if count == 0 {
        let message = format!("{} tokens are too few for a chunk of {}", tokens.len(), args.context);
        return Err(Error::argument(location, message));
    }
    let start = if tokenizer.add_bos() { tokenizer.bos() } else { None };
    let session = |model: &Model| {
        let cache = args.model_args.kv;
        model.session(SessionOptions { context: args.context, cache, ..SessionOptions::default() })
    };
    let mut scores = Scores::new(session(&pair.candidate)?, Some(session(&pair.baseline)?));
    for (index, chunk) in tokens.chunks_exact(args.context).take(count).enumerate() {
        let mut chunk = chunk.to_vec();
        chunk[0] = start.unwrap_or(chunk[0]);
        scores.add(&chunk)?;
        output::note(open.quiet, format!("[{}/{count}] {:.4}", index + 1, scores.sum.perplexity()));
    }
    let (before, after) = (scores.other_sum.perplexity(), scores.sum.perplexity());
    report.push(
        GateCheck::at_most(
            "perplexity, increase in percent",
            100.0 * (after / before - 1.0),
            args.max_perplexity_increase,
        )
        .comparing(before, after),
    );
    report.push(GateCheck::at_most(
        "KL divergence, mean in nats",
        scores.agreement.divergence(),
        args.max_divergence,
    ));
    report.push(GateCheck::at_most(
        "KL divergence, p99 in nats",
        scores.agreement.divergence_p99(),
        args.max_divergence_p99,
    ));
    report.push(GateCheck::at_least(
        "same most likely token, percent",
        100.0 * scores.agreement.agreement(),
        args.min_agreement,
    ));
    Ok(())
}

/// Compares the sizes of files and the memory of sessions.
fn memory(args: &Args, pair: &Pair, report: &mut Report) -> Result<()> {
    let size = |model: &Model| {
        let (context, cache) = (args.context, args.model_args.kv);
        let options = SessionOptions { context, cache, ..SessionOptions::default() };
        let memory = model.memory(&options)?;
        Ok((memory.arena + memory.cache + memory.mapped) as f64)
    };
    let [before, after]: [Result<f64>; 2] = [&pair.baseline, &pair.candidate].map(size);
    let (before, after) = (before?, after?);
    report
        .push(GateCheck::at_most("memory, ratio", after / before, args.max_memory).comparing(before, after));
    Ok(())
}
