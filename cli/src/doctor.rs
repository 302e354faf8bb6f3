//! `siskin doctor`: hardware report and self-test.

use crate::options::{ModelArgs, OpenArgs};
use crate::table::{self, ReportField};
use serde_json::{Value, json};
use siskin::self_test::{self, Goldens, SelfTest};
use siskin::{Cpu, DeviceKind, Error, ErrorKind, Model, ModelOptions, Result};
use siskin_convert::AdapterSource;
use std::path::{Path, PathBuf};

/// The entries of the report, by their keys in JSON.
const FIELDS: &[ReportField] =
    &[("cpu_features", "CPU features", ""), ("self_test", "self-test", ""), ("goldens", "goldens", "")];

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
        let tested = test(path, open, &options, args.model_args.beside())?;
        add("kernels", json!(tested.kernels));
        different = tested.different;
        if let Some(has_passed) = tested.has_goldens {
            let state = if has_passed { "the bits recorded in the file" } else { "differ" };
            add("goldens", state.into());
            if !has_passed {
                let message =
                    "the outputs differ from those that the file records: memory, file or kernels are faulty";
                different.get_or_insert_with(|| message.to_owned());
            }
        }
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

/// What the tests of a model found.
struct Tested {
    kernels: Vec<&'static str>,
    /// How its outputs differ from those of the reference.
    different: Option<String>,
    /// Whether they are those that the file records; `None`: it records none.
    has_goldens: Option<bool>,
}

fn test(
    path: &Path,
    open: &OpenArgs,
    options: &ModelOptions,
    beside: Option<AdapterSource<'_>>,
) -> Result<Tested> {
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
    let reference = model(DeviceKind::Reference, None)?;
    let [found, expected] = [&model_under_test, &reference].map(|model| self_test::outputs(model, None));
    let (found, expected) = (found?, expected?);
    let differing = found.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let furthest = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let same = differing == 0 && found.len() == expected.len();
    let message =
        format!("{differing} of {} logits differ from the reference, by up to {furthest:e}", expected.len());
    // They are those of the file's own weights.
    let goldens = if adapter.is_none() { Goldens::of(&model_under_test)? } else { None };
    let outcome = goldens.map(|goldens| goldens.check(&model_under_test)).transpose()?;
    Ok(Tested {
        kernels: model_under_test.kernels(),
        different: (!same).then_some(message),
        has_goldens: outcome.map(|outcome| outcome == SelfTest::Passed),
    })
}
