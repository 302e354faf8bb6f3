//! `siskin doctor`: what this machine offers, and whether a model runs right on it.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use serde_json::{Value, json};
use siskin::{Cpu, Error, ErrorKind, ExecutorKind, Model, ModelOptions, Result, SessionOptions};
use std::path::{Path, PathBuf};

/// Tokens of the self-test.
const TOKENS: usize = 12;

/// Show what this machine offers, and test a model on it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A model to test: its logits must be the same, bit for bit, with and without this machine's kernels
    model: Option<PathBuf>,
    #[command(flatten)]
    model_args: ModelArgs,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let options = args.model_args.options()?;
    let mut report = Vec::new();
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("version", env!("CARGO_PKG_VERSION").into());
    add("system", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH).into());
    add("cores", std::thread::available_parallelism().map_or(0, usize::from).into());
    add("cpu_features", Cpu::detect().without(options.without).features().to_string().into());
    let mut different = None;
    if let Some(path) = &args.model {
        let (kernels, outcome) = test(path, open, &options)?;
        add("kernels", json!(kernels));
        different = outcome;
        add("self_test", different.clone().unwrap_or_else(|| "same bits".to_owned()).into());
    }
    output::report(report, args.json)?;
    match different {
        None => Ok(()),
        Some(message) => Err(Error::new(ErrorKind::Numeric, "self-test", message)),
    }
}

/// The kernels, and what differs.
fn test(path: &Path, open: &OpenArgs, options: &ModelOptions) -> Result<(Vec<&'static str>, Option<String>)> {
    let file = open.file(path)?;
    let model = |executor| Model::from_file(file.clone(), &ModelOptions { executor, ..*options });
    let model_under_test = model(ExecutorKind::Cpu)?;
    let (found, expected) = (logits(&model_under_test)?, logits(&model(ExecutorKind::Reference)?)?);
    let differing = found.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let furthest = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let same = differing == 0 && found.len() == expected.len();
    let message =
        format!("{differing} of {} logits differ from the reference, by up to {furthest:e}", expected.len());
    Ok((model_under_test.kernels(), (!same).then_some(message)))
}

fn logits(model: &Model) -> Result<Vec<f32>> {
    let context = TOKENS.min(model.hyper().context.max(1));
    let mut session = model.session(SessionOptions { context, ..SessionOptions::default() })?;
    let vocabulary = model.hyper().vocabulary.max(1);
    let ids: Vec<u32> = (0..context).map(|index| ((1000 + 7919 * index) % vocabulary) as u32).collect();
    let mut all = Vec::new();
    session.score(&ids, &mut |_, logits| all.extend_from_slice(logits))?;
    Ok(all)
}
