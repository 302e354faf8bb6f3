//! `siskin export`: exports a model to another format.

use crate::built_in_model;
use crate::input_path;
use crate::options::OpenArgs;
use crate::output::{self, Bar};
use serde_json::json;
use siskin::Result;
use siskin_convert::export::{self, Dtype, ExportOptions};
use std::path::PathBuf;
use std::time::Instant;

/// Export a model as a Hugging Face folder (safetensors), a GGUF file or an ONNX model
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model, in any supported format
    model: PathBuf,
    /// Output file, or output folder for safetensors; files are created atomically
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Output format: safetensors, gguf or onnx; default: by the extension of the output, or safetensors without one
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Data type of the weights: f32, f16, bf16, or keep: the model's own type where the format supports it
    #[arg(long, value_name = "TYPE", default_value = "keep")]
    dtype: String,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let format = export::format_for(args.format.as_deref(), &args.output)?;
    let dtype = args.dtype.parse::<Dtype>()?;
    let start = Instant::now();
    let file = open.file(&args.model)?;
    let report = {
        let bar = Bar::new(open.quiet);
        let is_built_in = built_in_model::is_meant(&args.model);
        let inputs = if is_built_in {
            Vec::new()
        } else {
            export::inputs_of(&input_path::model(&args.model, open.quiet)?)?
        };
        let options =
            ExportOptions { dtype, force: args.force, inputs, progress: &bar, ..ExportOptions::default() };
        export::export(&file, format, &args.output, &options)
            .map_err(|error| error.within(&args.model.display().to_string()))?
    };
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        let files: Vec<_> = report.files.iter().map(|file| file.display().to_string()).collect();
        let seconds = output::round(seconds, 3);
        return output::json(&json!({"output": args.output.display().to_string(), "format": format.name,
            "files": files, "bytes": report.bytes, "seconds": seconds, "notes": report.notes}));
    }
    for note in &report.notes {
        output::note(open.quiet, format!("note: {note}"));
    }
    let (location, size) = (args.output.display(), output::bytes(report.bytes));
    output::line(format!("{location}: {size} in {seconds:.1} s"))
}
