//! `--large`: decode speed of large models, relative to the memory read bandwidth.

use super::programs::siskin;
use super::report::{cpu_name, median, middle, value};
use super::{Options, ROUNDS, THREADS, build, model};
use crate::shell::{self, Result, output, program, run};
use std::path::Path;

/// The recipe that makes the models large, and the bytes read per token from which a model counts as large.
const RECIPE: &str = "f16,tables=f16,always";
const MIN_BYTES: f64 = 300e6;

/// Measures reading and generating in turns and prints a table.
pub(super) fn compare(options: &Options) -> Result {
    let (threads, rounds) = (options.threads.unwrap_or(THREADS), options.rounds.unwrap_or(ROUNDS));
    build()?;
    let reader = shell::measuring("bench_reads")?;
    let mut rows = Vec::new();
    for name in &options.models {
        let source = model::bring(name)?;
        let file = source.with_extension("large.siskin");
        let mut convert = program(shell::release("siskin"), &["convert", "--quiet", "--quant", RECIPE]);
        run(convert.arg(&source).arg("--output").arg(&file))?;
        let bytes = tensor_bytes(&file)?;
        let (mut reads, mut reports) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            eprintln!("{name}: round {} of {rounds}", round + 1);
            let size = format!("{bytes:.0}");
            let rate = output(&mut program(&reader, &[&size, &threads.to_string()]))?;
            reads.push(rate.trim().parse().map_err(|_| format!("bench_reads said `{rate}`"))?);
            reports.push(siskin(&file, &["--prompt", "0", "--generate", "64", "--repeat", "3"], threads)?);
        }
        std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let tokens = median(&reports, "generate_tok_s")?;
        let ceiling = middle(reads).unwrap_or(f64::NAN);
        rows.push(format!(
            "| {name} as f16{} | {:.0} | {tokens:.1} | {:.1} | {:.1} | {:.0}% |",
            if bytes < MIN_BYTES { ", for comparison" } else { "" },
            bytes / 1e6,
            tokens * bytes / 1e9,
            ceiling / 1e9,
            100.0 * tokens * bytes / ceiling
        ));
    }
    println!("\nCPU: {}, {threads} threads. Medians of {rounds} rounds.\n", cpu_name());
    println!("| model | MB read for a token | tok/s | GB/s | reading alone, GB/s | reached |");
    println!("|---|---|---|---|---|---|\n{}", rows.join("\n"));
    Ok(())
}

/// Returns the bytes of all tensors: with tied embeddings, every token reads all of them.
fn tensor_bytes(file: &Path) -> Result<f64> {
    let report = output(program(shell::release("siskin"), &["inspect", "--json"]).arg(file))?;
    let section = report.split('{').find(|part| value(part, "kind") == Some("\"tensor data\""));
    let bytes = section.and_then(|section| value(section, "bytes")?.trim_end_matches('}').parse().ok());
    bytes.ok_or_else(|| format!("`siskin inspect` says nothing of tensor data: {report}"))
}
