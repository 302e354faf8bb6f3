//! `siskin inspect`: the contents of a model file.

use crate::options::{ModelArgs, OpenArgs};
use crate::verify::identity;
use crate::{built_in_model, input_path, output};
use serde_json::{Value, json};
use siskin::external_model::PortInfo;
use siskin::file::{File, StorageRole};
use siskin::{ErrorKind, Result};
use siskin_convert::import::{self, ModelSource};
use std::path::{Path, PathBuf};

/// Show the contents of a model file
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a name (see `siskin pull --help`), a .siskin, GGUF or ONNX file, or a folder
    file: PathBuf,
    /// List the tensors
    #[arg(long)]
    tensors: bool,
    /// Show the execution plan of a session (packs the model first if needed)
    #[arg(long)]
    plan: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn command(args: &Args, open: &OpenArgs) -> Result<()> {
    let path = &*input_path::model(&args.file, open.quiet)?;
    let mut report = match import::format_of(path) {
        Ok(format) if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("siskin")) => {
            match (format.open)(path) {
                Ok(source) => of_source(source.as_ref(), format.name, args.tensors)?,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    of_general(args, open, format.name).unwrap_or(Err(error))?
                }
                Err(error) => return Err(error),
            }
        }
        Err(_) if built_in_model::is_meant(path) => of_file(&built_in_model::file()?, args.tensors),
        Err(error) if !path.is_file() => return Err(error),
        _ => of_file(&File::open(path)?, args.tensors),
    };
    let plan = match args.plan {
        true => Some(open.model(path, &ModelArgs::default())?.plan_text()?),
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
        "license": metadata.license,
        "parameters": file.tensors().iter().map(|tensor| tensor.rows * tensor.columns).sum::<usize>(),
        "tokenizer": file.tokenizer().is_some(),
        "template": file.template().is_some(),
        "config": metadata.config,
        "quantization": metadata.quantization,
        "provenance": metadata.provenance,
        "sections": sections.collect::<Vec<_>>(),
    });
    if tensors {
        let tensor = |tensor: &siskin::file::Tensor| {
            let kind = match tensor.role {
                StorageRole::Matrix => tensor.panel.name(),
                StorageRole::Vector => "vector",
            };
            json!({"name": tensor.name, "type": kind, "rows": tensor.rows, "columns": tensor.columns,
                "bytes": tensor.data.len()})
        };
        report["tensors"] = file.tensors().iter().map(tensor).collect();
    }
    report
}

/// Reports on an unpacked model: lists the tensors that its packed file would have.
fn of_source(source: &dyn ModelSource, format: &str, tensors: bool) -> Result<Value> {
    let (_, graphs) = source.family().build(source.config(), &|name| source.has(name))?;
    let weights = graphs.weights();
    let mut report = json!({
        "format": format,
        "architecture": source.family().name,
        "name": source.name(),
        "license": source.license(),
        "parameters": weights.iter().map(|weight| weight.rows * weight.columns).sum::<usize>(),
        "template": source.template().is_some(),
        "config": source.config().values(),
        "provenance": source.provenance(),
    });
    if tensors {
        let tensors = weights.iter().map(|weight| {
            let tensor = source.tensor(&weight.name)?;
            let source = tensor.name;
            Ok(json!({"name": weight.name, "type": tensor.block.name(), "rows": weight.rows,
                "columns": weight.columns, "bytes": tensor.data.len(), "source": source}))
        });
        report["tensors"] = Value::Array(tensors.collect::<Result<_>>()?);
    }
    Ok(report)
}

/// Reports on a model that runs unpacked; `None` for other models.
fn of_general(args: &Args, open: &OpenArgs, format: &str) -> Option<Result<Value>> {
    let model = open.model(&args.file, &ModelArgs::default()).ok()?;
    let engine = model.external_model()?;
    let port = |port: &PortInfo| {
        let size = |size: &Option<usize>| size.map_or_else(|| "any".into(), Value::from);
        let shape = port.shape.as_ref().map(|sizes| sizes.iter().map(size).collect::<Vec<_>>());
        (port.name.clone(), json!({"shape": shape, "integers": port.integers}))
    };
    let ports = |ports: Vec<PortInfo>| ports.iter().map(port).collect::<serde_json::Map<_, _>>();
    let metadata = model.file().metadata();
    Some(Ok(json!({
        "format": format,
        "architecture": model.family(),
        "name": metadata.name,
        "tokenizer": model.file().tokenizer().is_some(),
        "template": model.file().template().is_some(),
        "config": metadata.config,
        "inputs": ports(engine.inputs()),
        "outputs": ports(engine.outputs()),
        "notes": model.notes(),
    })))
}

/// The keys printed first; the others follow.
const FIRST: &[&str] = &[
    "format",
    "architecture",
    "name",
    "license",
    "parameters",
    "bytes",
    "identity",
    "tokenizer",
    "template",
];

fn print(report: &Value, path: &Path) -> Result<()> {
    output::line(path.display())?;
    let first = FIRST.iter().filter_map(|&key| Some((key, report.get(key)?)));
    let entries = report.as_object().into_iter().flatten();
    let rest = entries.map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !FIRST.contains(key));
    for (key, value) in first.chain(rest) {
        match value {
            Value::Null => {}
            Value::Object(entries) => {
                output::line(format!("{key}:"))?;
                entries
                    .iter()
                    .try_for_each(|(name, value)| output::line(format!("  {name}: {}", short(value))))?;
            }
            Value::Array(rows) => {
                output::line(format!("{key}:"))?;
                let line = |row: &Value| row.as_str().map_or_else(|| cells(row), str::to_owned);
                rows.iter().try_for_each(|row| output::line(format!("  {}", line(row))))?;
            }
            value => output::line(format!("{key}: {}", short(value)))?,
        }
    }
    Ok(())
}

/// Formats a section or tensor on one line.
fn cells(row: &Value) -> String {
    let text = |key: &str| row.get(key).map(short).unwrap_or_default();
    match row.get("kind") {
        Some(_) => format!("{:<14} {} bytes at {}", text("kind"), text("bytes"), text("offset")),
        None => {
            let shape = format!("{}×{}", text("rows"), text("columns"));
            format!("{:<28} {:<8} {shape:<14} {} bytes", text("name"), text("type"), text("bytes"))
        }
    }
}

/// Formats a value on one line, leaving out long parts.
fn short(value: &Value) -> String {
    const MAX: usize = 100;
    let text = output::text(value);
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
