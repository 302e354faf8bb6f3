//! `--threads-over`: twice as many threads as cores, compared to one per core.

use super::programs::siskin;
use super::report::{cpu_name, median, value};
use super::{Options, ROUNDS, build, model};
use crate::shell::Result;
use std::path::Path;

/// The keys that `siskin bench` prints, and their names in the table.
const MEASURES: [(&str, &str); 2] = [("prompt_tok_s", "prompt 512"), ("generate_tok_s", "generate 128")];

/// Measures both in turns and prints a table.
pub(super) fn compare(options: &Options) -> Result {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let few = options.threads.unwrap_or(cores);
    let (many, rounds) = (2 * few, options.rounds.unwrap_or(ROUNDS));
    build()?;
    let mut rows = Vec::new();
    for name in &options.models {
        let file = model::bring(name)?;
        let mut reports = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            eprintln!("{name}: {few} and {many} threads, round {} of {rounds}", round + 1);
            for (threads, reports) in [few, many].into_iter().zip(&mut reports) {
                reports.push(bench(&file, threads)?);
            }
        }
        for (key, title) in MEASURES {
            let (a, b) = (median(&reports[0], key)?, median(&reports[1], key)?);
            rows.push(format!("| {name} | {title} | {a:.1} | {b:.1} | {:.2} |", b / a));
        }
    }
    println!("\nCPU: {}, {cores} cores. Medians of {rounds} rounds.\n", cpu_name());
    println!("| model | work | {few} threads tok/s | {many} threads tok/s | ratio |\n|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(())
}

fn bench(file: &Path, threads: usize) -> Result<String> {
    let report = siskin(file, &["--prompt", "512", "--generate", "128", "--repeat", "3"], threads)?;
    match value(&report, "threads") {
        Some(used) if used == threads.to_string() => Ok(report),
        used => Err(format!("{threads} threads were asked for, and {used:?} ran")),
    }
}
