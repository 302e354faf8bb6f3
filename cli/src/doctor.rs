//! `siskin doctor`: hardware report and self-test.

use crate::options::{ModelArgs, OpenArgs};
use crate::table::{self, ReportField};
use serde_json::{Value, json};
use siskin::encoder::EncoderInput;
use siskin::{
    Cpu, DeviceKind, EncoderOptions, Error, ErrorKind, Model, ModelOptions, OutputRows, Result,
    SessionOptions,
};
use siskin_convert::AdapterSource;
use std::path::{Path, PathBuf};

/// Token ids of the self-test.
const TOKENS: usize = 12;

/// The entries of the report, by their keys in JSON.
const FIELDS: &[ReportField] = &[("cpu_features", "CPU features", ""), ("self_test", "self-test", "")];

/// Show the CPU features of this machine, and test a model on it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A model to test: its logits must be bit-identical with the optimized kernels and the reference
    model: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model_args: ModelArgs,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let options = args.model_args.options()?;
    let mut report = Vec::new();
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("version", env!("CARGO_PKG_VERSION").into());
    add("system", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH).into());
    add("cores", std::thread::available_parallelism().map_or(0, usize::from).into());
    add("cpu_features", Cpu::detect().without(options.disabled_cpu_features).features().to_string().into());
    let mut different = None;
    if let Some(path) = &args.model {
        let (kernels, outcome) = test(path, open, &options, args.model_args.beside())?;
        add("kernels", json!(kernels));
        different = outcome;
        add(
            "self_test",
            different.clone().unwrap_or_else(|| "bit-identical to the reference".to_owned()).into(),
        );
    }
    table::print(report, FIELDS, args.json)?;
    match different {
        None => Ok(()),
        Some(message) => Err(Error::new(ErrorKind::Numeric, "self-test", message)),
    }
}

/// Returns the kernels in use, and any mismatches.
fn test(
    path: &Path,
    open: &OpenArgs,
    options: &ModelOptions,
    beside: Option<AdapterSource<'_>>,
) -> Result<(Vec<&'static str>, Option<String>)> {
    let file = open.file(path)?;
    let adapter = beside.map(|beside| siskin_convert::open_adapter(beside, &file)).transpose()?;
    let model = |device, backend| {
        let (file, options) = (file.clone(), ModelOptions { device, backend, ..*options });
        match &adapter {
            Some(adapter) => Model::with_adapter(file, adapter, &options),
            None => Model::from_file(file, &options),
        }
    };
    let model_under_test = model(DeviceKind::Cpu, options.backend)?;
    let (found, expected) = (logits(&model_under_test)?, logits(&model(DeviceKind::Reference, None)?)?);
    let differing = found.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let furthest = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let same = differing == 0 && found.len() == expected.len();
    let message =
        format!("{differing} of {} logits differ from the reference, by up to {furthest:e}", expected.len());
    Ok((model_under_test.kernels(), (!same).then_some(message)))
}

/// Returns the outputs of the model for fixed tokens or audio, and its generated tokens.
fn logits(model: &Model) -> Result<Vec<f32>> {
    let model_config = model.config();
    let vocabulary = model_config.vocabulary.max(1);
    let ids = |count: usize| -> Vec<u32> {
        (0..count).map(|index| ((1000 + 7919 * index) % vocabulary) as u32).collect()
    };
    let mut all = Vec::new();
    let text = match model_config.features {
        0 => EncoderInput::from(ids(TOKENS.min(model_config.encoder_context.max(1)))),
        bands => {
            let features = (0..2 * TOKENS * bands).map(|index| (index * 37 % 101) as f32 / 101.0 - 0.5);
            EncoderInput { features: features.collect(), ..EncoderInput::default() }
        }
    };
    if model.graphs().encoder.is_some() {
        let mut encoder = model.encoder(EncoderOptions::default())?;
        encoder.encode(std::slice::from_ref(&text), OutputRows::All, &mut |_, outputs| {
            outputs.rows().for_each(|row| all.extend_from_slice(row));
            Ok(())
        })?;
    }
    if model.graphs().decoder.is_some() {
        let context = TOKENS.min(model_config.context.max(1));
        let mut session = model.session(SessionOptions { context, ..SessionOptions::default() })?;
        if model.graphs().encoder.is_some() {
            session.encode(&text)?;
        }
        session.score(&ids(context), &mut |_, logits| all.extend_from_slice(logits))?;
    }
    Ok(all)
}
