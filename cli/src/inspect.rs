//! `siskin inspect`: what a model file holds.

use crate::options::{ModelArgs, OpenArgs};
use crate::output;
use crate::verify::identity;
use serde_json::{Value, json};
use siskin::Result;
use siskin::file::{File, Role};
use siskin_convert::import::{self, Source};
use std::path::{Path, PathBuf};

/// Show what a model file holds
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A .siskin or GGUF file, or a Hugging Face folder
    file: PathBuf,
    /// List the tensors
    #[arg(long)]
    tensors: bool,
    /// Show the steps that a session takes (packs the model where it is not yet packed)
    #[arg(long)]
    plan: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let mut report = match import::format_of(&args.file) {
        Ok(format) if args.file.extension().is_none_or(|extension| extension != "siskin") => {
            of_source((format.open)(&args.file)?.as_ref(), format.name, args.tensors)?
        }
        _ => of_file(&File::open(&args.file)?, args.tensors),
    };
    let plan = match args.plan {
        true => Some(open.model(&args.file, &ModelArgs::default())?.plan_text()?),
        false => None,
    };
    if args.json {
        if let Some(plan) = plan {
            report["plan"] = plan.into();
        }
        return output::json(&report);
    }
    print(&report, &args.file)?;
    plan.map_or(Ok(()), |plan| output::line(format!("\n{plan}")))
}

fn of_file(file: &File, tensors: bool) -> Value {
    let metadata = file.metadata();
    let sections = file.sections().map(|section| {
        let kind = section.kind.map_or("unknown", |kind| kind.name());
        json!({"kind": kind, "offset": section.offset, "bytes": section.length})
    });
    let mut report = json!({
        "format": "siskin",
        "identity": identity(file),
        "bytes": file.bytes().len(),
        "architecture": metadata.architecture,
        "name": metadata.name,
        "licence": metadata.licence,
        "parameters": file.tensors().iter().map(|tensor| tensor.rows * tensor.columns).sum::<usize>(),
        "tokenizer": file.tokenizer().is_some(),
        "template": file.template().is_some(),
        "config": metadata.config,
        "quantisation": metadata.quantisation,
        "provenance": metadata.provenance,
        "sections": sections.collect::<Vec<_>>(),
    });
    if tensors {
        let tensor = |tensor: &siskin::file::Tensor| {
            let kind = match tensor.role {
                Role::Matrix => tensor.panel.name(),
                Role::Vector => "vector",
            };
            json!({"name": tensor.name, "type": kind, "rows": tensor.rows, "columns": tensor.columns,
                "bytes": tensor.data.len()})
        };
        report["tensors"] = file.tensors().iter().map(tensor).collect();
    }
    report
}

/// A model that is not packed: the tensors are those its packed form would have.
fn of_source(source: &dyn Source, format: &str, tensors: bool) -> Result<Value> {
    let (_, graph) = source.family().build(source.config(), &|name| source.has(name))?;
    let mut report = json!({
        "format": format,
        "architecture": source.family().name,
        "name": source.name(),
        "licence": source.licence(),
        "parameters": graph.weights.iter().map(|weight| weight.rows * weight.columns).sum::<usize>(),
        "template": source.template().is_some(),
        "config": source.config().values(),
        "provenance": source.provenance(),
    });
    if tensors {
        let tensors = graph.weights.iter().map(|weight| {
            let tensor = source.tensor(&weight.name)?;
            let source = tensor.name;
            Ok(json!({"name": weight.name, "type": tensor.block.name(), "rows": weight.rows,
                "columns": weight.columns, "bytes": tensor.data.len(), "source": source}))
        });
        report["tensors"] = Value::Array(tensors.collect::<Result<_>>()?);
    }
    Ok(report)
}

fn print(report: &Value, path: &Path) -> Result<()> {
    output::line(path.display())?;
    for (key, value) in report.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Object(entries) => {
                output::line(format!("{key}:"))?;
                for (name, value) in entries {
                    output::line(format!("  {name}: {}", short(value)))?;
                }
            }
            Value::Array(rows) => {
                output::line(format!("{key}:"))?;
                for row in rows {
                    let cells =
                        row.as_object().into_iter().flatten().map(|(name, value)| match name.as_str() {
                            "name" | "kind" => short(value),
                            _ => format!("{name} {}", short(value)),
                        });
                    output::line(format!("  {}", cells.collect::<Vec<_>>().join(", ")))?;
                }
            }
            value => output::line(format!("{key}: {}", short(value)))?,
        }
    }
    Ok(())
}

/// A value on one line, without what makes the line too long to read.
fn short(value: &Value) -> String {
    const MOST: usize = 100;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
