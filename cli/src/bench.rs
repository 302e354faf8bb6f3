//! `siskin bench`: how fast a model is on this machine.

mod pair;
mod reading;

use crate::memory;
use crate::options::{ModelArgs, OpenArgs};
use crate::output::{self, round};
use serde_json::{Value, json};
use siskin::{Error, Model, Result, Session, SessionOptions};
use std::path::PathBuf;
use std::time::Instant;

/// Tokens of the prompt before the first token is timed.
const FIRST_PROMPT: usize = 8;

/// Measure the speed of a model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin, GGUF or ONNX file, or a model folder
    model: PathBuf,
    /// Tokens of the prompt, or of each text for models that read whole texts; 0: do not measure it. Models of speech
    /// read a whole window
    #[arg(long, default_value_t = 512, value_name = "N")]
    prompt: usize,
    /// Tokens to generate; 0: do not measure it
    #[arg(long, default_value_t = 128, value_name = "N")]
    generate: usize,
    /// Texts that are read at once, by models that read whole texts
    #[arg(long, default_value_t = 1, value_name = "N")]
    texts: usize,
    /// Tokens of these texts in turn, such as 16,128,40
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    lengths: Vec<usize>,
    /// Tokens that are in the context before what is measured
    #[arg(long, default_value_t = 0, value_name = "N")]
    depth: usize,
    /// How often each is measured; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    if args.prompt == 0 && args.generate == 0 {
        return Err(Error::argument("--prompt", "is 0, and so is --generate: nothing is left to measure"));
    }
    args.model_args.options()?;
    if !open.no_cache {
        // Packing, where it is needed, is not opening.
        drop(open.file(&args.model)?);
    }
    let start = Instant::now();
    let model = open.model(&args.model, &args.model_args)?;
    let open_ms = milliseconds(start);
    match (&model.graphs().encoder, &model.graphs().decoder) {
        (_, None) => return reading::report(args, &model, open_ms, start),
        (Some(_), Some(_)) => return pair::report(args, &model, open_ms, start),
        (None, Some(_)) => {}
    }
    let context = args.depth + args.prompt.max(args.generate).max(FIRST_PROMPT);
    let mut session =
        model.session(SessionOptions { context, cache: args.model_args.kv, ..SessionOptions::default() })?;
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
    if args.generate > 0 {
        let ids = &ids[..args.generate];
        let generate = |session: &mut Session| ids.iter().try_for_each(|&id| session.prefill(&[id]));
        add("generate_tok_s", measure(args, &mut session, ids, generate)?.into());
    }
    finish(args, &model, report)
}

/// What was measured, and how long opening took.
fn measured(args: &Args, model: &Model, open_ms: f64) -> Vec<(&'static str, Value)> {
    vec![
        ("model", args.model.display().to_string().into()),
        ("family", model.family().into()),
        ("threads", model.threads().into()),
        ("open_ms", round(open_ms, 2).into()),
    ]
}

/// Prints the report, with what memory holds by then and which kernels ran.
fn finish(args: &Args, model: &Model, mut report: Vec<(&'static str, Value)>) -> Result<()> {
    let resident = memory::resident();
    report.extend([
        ("anonymous_mib", json!(resident.map(|(own, _)| round(own, 1)))),
        ("mapped_mib", json!(resident.map(|(_, files)| round(files, 1)))),
        ("kernels", json!(model.kernels())),
    ]);
    output::report(report, args.json)
}

/// Ids that are spread over the vocabulary.
fn ids(count: usize, model: &Model) -> Result<Vec<u32>> {
    let vocabulary = model.hyper().vocabulary.max(1);
    let id = |index: usize| u32::try_from((1000 + 7919 * index) % vocabulary);
    let ids = (0..count).map(id).collect::<std::result::Result<_, _>>();
    ids.map_err(|_| Error::unsupported("vocabulary", "is too large"))
}

/// The median of tokens a second, after a short run that is not counted.
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

fn median(mut values: Vec<f64>) -> f64 {
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
