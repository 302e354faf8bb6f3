//! `siskin bench`: the speed of a model on this machine.

mod constrain;
mod encoder;
mod encoder_decoder;
mod engine;
mod responses;
mod sequences;
mod speculate;

use crate::draft::DraftArgs;
use crate::memory;
use crate::options::{ModelArgs, OpenArgs};
use crate::output::{self, round};
use crate::structured_output::StructuredOutputArgs;
use crate::table::{self, ReportField};
use engine::SessionEngine;
use serde_json::{Value, json};
use siskin::encoder::EncoderInput;
use siskin::{Error, Model, Result, Session, SessionOptions};
use std::path::PathBuf;
use std::time::Instant;

/// Prompt length for the time to first token.
const FIRST_PROMPT: usize = 8;

/// The entries of the report, by their keys in JSON.
const FIELDS: &[ReportField] = &[
    ("open_ms", "load time", "ms"),
    ("first_token_ms", "time to first token", "ms"),
    ("first_read_ms", "time to first result", "ms"),
    ("depth", "KV cache depth", "tokens"),
    ("prompt_tok_s", "prefill", "tokens/s"),
    ("sequences", "parallel sequences", ""),
    ("generated_tokens", "response", "tokens"),
    ("generate_tok_s", "decode", "tokens/s"),
    ("speculative_tok_s", "decode with draft tokens", "tokens/s"),
    ("passes", "forward passes", ""),
    ("constrained_tok_s", "decode with structured output", "tokens/s"),
    ("speedup", "speedup", ""),
    ("relative_speed", "relative speed", ""),
    ("relative_pass_time", "relative time per pass", ""),
    ("draft_tokens", "draft tokens", ""),
    ("accepted_tokens", "accepted tokens", ""),
    ("read_ms", "encode", "ms"),
    ("read_tok_s", "encode", "tokens/s"),
    ("padding", "padding of rows", ""),
    ("anonymous_mib", "anonymous memory", "MiB"),
    ("mapped_mib", "mapped files", "MiB"),
];

/// Measure the speed of a model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    model: PathBuf,
    /// Prompt length in tokens (prefill), or the length of each text for encoders; 0 skips it. Speech models always
    /// process a full window
    #[arg(long, default_value_t = 512, value_name = "N")]
    prompt: usize,
    /// Number of tokens to generate (decode); 0 skips it
    #[arg(long, default_value_t = 128, value_name = "N")]
    generate: usize,
    /// Number of sequences to decode as a batch; the decode speed is the total over all of them
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    sequences: u16,
    /// Measure sessions on an engine, which share forward passes; with --sequences, one session per thread
    #[arg(long)]
    engine: bool,
    /// Batch size (number of texts), for encoders
    #[arg(long, default_value_t = 1, value_name = "N")]
    texts: usize,
    /// Text lengths in tokens, cycled through to fill the batch, such as 16,128,40
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    lengths: Vec<usize>,
    /// Number of tokens in the KV cache before each measurement
    #[arg(long, default_value_t = 0, value_name = "N")]
    depth: usize,
    /// Measure decoding of the response to the text in this file with and without speculation: prompt lookup,
    /// and a draft model if one is given
    #[arg(long, value_name = "FILE")]
    speculate: Option<PathBuf>,
    /// Measure decoding of the response to the text in this file with and without structured output
    #[arg(long, value_name = "FILE", requires = "structured_output", conflicts_with = "speculate")]
    constrain: Option<PathBuf>,
    /// Repetitions of each measurement; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    structured_output: StructuredOutputArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    model_args: ModelArgs,
}

/// Rejects options that have no effect.
fn check(args: &Args) -> Result<()> {
    if args.prompt == 0 && args.generate == 0 {
        return Err(Error::argument("--prompt, --generate", "both are 0: nothing to measure"));
    }
    if args.generate == 0 && args.sequences > 1 {
        return Err(Error::argument("--sequences", "no effect with --generate 0"));
    }
    args.model_args.options()?;
    let has_text = args.speculate.is_some() || args.constrain.is_some();
    if has_text && (args.engine || args.sequences > 1 || args.depth > 0) {
        let message = "no effect with --speculate and --constrain, which measure one request on an engine";
        return Err(Error::argument("--engine, --sequences, --depth", message));
    }
    if args.constrain.is_none() && args.structured_output.output()?.is_some() {
        return Err(Error::argument("structured output", "no effect without --constrain"));
    }
    if args.draft.is_given() && args.speculate.is_none() {
        return Err(Error::argument("--draft-model, --draft-skip-layers", "no effect without --speculate"));
    }
    Ok(())
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    check(args)?;
    if let Some(path) = &args.speculate {
        return speculate::report(args, open, path);
    }
    if let Some(path) = &args.constrain {
        return constrain::report(args, open, path);
    }
    if !open.no_cache {
        // Pack before the timed open, if the model is not packed yet.
        drop(open.file(&args.model)?);
    }
    let start = Instant::now();
    let model = open.model(&args.model, &args.model_args)?;
    let open_ms = milliseconds(start);
    if args.engine && model.graphs().encoder.is_some() {
        return Err(Error::argument("--engine", "only decoder-only models run on an engine"));
    }
    match (&model.graphs().encoder, &model.graphs().decoder) {
        (_, None) => return encoder::report(args, &model, open_ms, start),
        (Some(_), Some(_)) => return encoder_decoder::report(args, &model, open_ms, start),
        (None, Some(_)) => {}
    }
    let context = args.depth + args.prompt.max(args.generate).max(FIRST_PROMPT);
    let options = SessionOptions { context, cache: args.model_args.kv, ..SessionOptions::default() };
    let count = usize::from(args.sequences);
    let engine = args.engine.then(|| SessionEngine::new(&model, options.clone(), count)).transpose()?;
    let mut session = match &engine {
        Some(engine) => engine.session()?,
        None => model.session(options.clone())?,
    };
    let ids = ids(context, &model)?;
    session.prefill(&ids[..FIRST_PROMPT])?;
    let first_token_ms = milliseconds(start);
    let mut report = measured(args, &model, open_ms);
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("first_token_ms", round(first_token_ms, 2).into());
    session.reset();
    if args.depth > 0 {
        add("depth", args.depth.into());
        session.prefill(&ids[..args.depth])?;
    }
    if args.prompt > 0 {
        let ids = &ids[..args.prompt];
        add("prompt_tok_s", measure(args, &mut session, ids, |session| session.prefill(ids))?.into());
    }
    if let Some(engine) = engine.filter(|_| args.sequences > 1 && args.generate > 0) {
        drop(session);
        report.extend(decoded(args, engine.decode(args, &ids)?));
        return finish(args, &model, report);
    }
    if args.engine && args.generate > 0 {
        let alone = &mut model.session(options)?;
        let relative = engine::relative_speed(args, &mut session, alone, &ids)?;
        report.push(("relative_speed", relative.into()));
    }
    finish_with_decode(args, &model, session, &ids, None, report)
}

/// Measures decoding, after the tokens that `session` has, and prints the report. `ids` has the tokens of the cache and
/// those generated; `source` is what an encoder-decoder model encodes first.
fn finish_with_decode(
    args: &Args,
    model: &Model,
    mut session: Session,
    ids: &[u32],
    source: Option<&EncoderInput>,
    mut report: Vec<(&'static str, Value)>,
) -> Result<()> {
    if args.generate == 0 {
        return finish(args, model, report);
    }
    if args.sequences == 1 {
        let ids = &ids[..args.generate];
        let generate = |session: &mut Session| ids.iter().try_for_each(|&id| session.prefill(&[id]));
        report.extend(decoded(args, measure(args, &mut session, ids, generate)?));
        return finish(args, model, report);
    }
    drop(session);
    // The report counts the memory of the context.
    let (rate, _context) = sequences::decode(args, model, ids, source)?;
    report.extend(decoded(args, rate));
    finish(args, model, report)
}

/// The decode speed.
fn decoded(args: &Args, rate: f64) -> [(&'static str, Value); 2] {
    [("sequences", args.sequences.into()), ("generate_tok_s", rate.into())]
}

/// The results, and the load time.
fn measured(args: &Args, model: &Model, open_ms: f64) -> Vec<(&'static str, Value)> {
    vec![
        ("model", args.model.display().to_string().into()),
        ("family", model.family().into()),
        ("threads", model.threads().into()),
        ("open_ms", round(open_ms, 2).into()),
    ]
}

/// Prints the report, with the resident memory at that point and the kernels used.
fn finish(args: &Args, model: &Model, mut report: Vec<(&'static str, Value)>) -> Result<()> {
    let resident = memory::resident();
    report.extend([
        ("anonymous_mib", json!(resident.map(|(own, _)| round(own, 1)))),
        ("mapped_mib", json!(resident.map(|(_, files)| round(files, 1)))),
        ("kernels", json!(model.kernels())),
    ]);
    table::print(report, FIELDS, args.json)
}

/// Returns token ids spread over the vocabulary.
fn ids(count: usize, model: &Model) -> Result<Vec<u32>> {
    let vocabulary = model.config().vocabulary.max(1);
    let id = |index: usize| u32::try_from((1000 + 7919 * index) % vocabulary);
    let ids = (0..count).map(id).collect::<std::result::Result<_, _>>();
    ids.map_err(|_| Error::unsupported("vocabulary", "too large"))
}

/// Returns the median tokens per second, after a short warmup.
fn measure(
    args: &Args,
    session: &mut Session,
    ids: &[u32],
    work: impl Fn(&mut Session) -> Result<()>,
) -> Result<f64> {
    session.prefill(&ids[..ids.len().min(FIRST_PROMPT)])?;
    let mut rates = Vec::new();
    for _ in 0..args.repeat {
        session.truncate(args.depth)?;
        let start = Instant::now();
        work(session)?;
        rates.push(output::rate(ids.len(), start.elapsed().as_secs_f64()));
    }
    session.truncate(args.depth)?;
    Ok(round(median(rates), 1))
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
