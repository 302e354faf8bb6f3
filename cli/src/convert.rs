//! `siskin convert`: converts a model of another format to a `.siskin` file.

use crate::options::{NoPackedFiles, OpenArgs};
use crate::output::{self, Bar};
use crate::{built_in_model, input_path};
use serde_json::json;
use siskin::file::File;
use siskin::self_test::Goldens;
use siskin::{Error, Model, ModelOptions, Result};
use siskin_convert::{Calibration, PackOptions, Recipe};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Convert a model to a .siskin file, or quantize it
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A GGUF file (the first part of a split model), a model folder, an ONNX model or, with --quant, a .siskin file
    source: PathBuf,
    /// The .siskin file to write; created atomically
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Quantize: a weight type such as q8_0, w8r, q4_k or w4i, or one of llama.cpp's mixes such as q4_k_m.
    /// `,tables=TYPE` sets a different type for the embeddings and the LM head; `,always` also re-encodes weights
    /// that already have fewer bits. Without --quant, the conversion is lossless
    #[arg(long, value_name = "TYPE")]
    quant: Option<String>,
    /// Calibrate on this text: round weights with GPTQ to minimize the output error on its activations
    #[arg(long, value_name = "FILE", requires = "quant")]
    calibrate: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    if built_in_model::is_meant(&args.source) {
        let message = "this is the built-in model, not a file; pass a model file or directory";
        return Err(Error::argument(built_in_model::NAME, message));
    }
    let source = &*input_path::model(&args.source, open.quiet)?;
    let recipe = args.quant.as_deref().map(str::parse::<Recipe>).transpose()?;
    let start = Instant::now();
    {
        let bar = Bar::new(open.quiet);
        let calibration = args.calibrate.as_deref().map(|text| calibrate(source, text, &bar)).transpose()?;
        let goldens = |file: &File| Ok(goldens(file, open));
        let options = PackOptions {
            recipe,
            goldens: Some(&goldens),
            progress: &bar,
            calibration: calibration.as_ref(),
            ..PackOptions::default()
        };
        siskin_convert::pack_file(source, &args.output, &options)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let location = args.output.display().to_string();
    let file = File::open(&args.output)?;
    let size = file.bytes().len() as u64;
    let types = file.metadata().quantization.clone();
    if args.json {
        let seconds = output::round(seconds, 3);
        return output::json(
            &json!({"output": location, "bytes": size, "seconds": seconds, "quantization": types}),
        );
    }
    let error = types.get("relative_error").and_then(serde_json::Value::as_f64);
    let error = error.map_or_else(String::new, |error| format!(", relative error {error:.5}"));
    output::line(format!("{location}: {} in {seconds:.1} s{error}", output::bytes(size)))
}

/// Returns the goldens of a file, by which later runs detect faulty memory and kernels.
fn goldens(file: &File, open: &OpenArgs) -> Option<Vec<u8>> {
    let computed =
        Model::from_file(file.clone(), &ModelOptions::default()).and_then(|model| Goldens::compute(&model));
    let goldens = computed.inspect_err(|error| {
        output::note(open.quiet, format!("the file gets no goldens for self-tests: {error}"));
    });
    Some(goldens.ok()?.to_section())
}

fn calibrate(source: &Path, text: &Path, progress: &Bar) -> Result<Calibration> {
    Calibration::collect(source, &input_path::read_text(text)?, progress)
}
