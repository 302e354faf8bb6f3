//! `--parallel`: several sequences that decode together, one token of each in a batch.

use super::peers::{self, Build};
use super::programs::{llama, siskin};
use super::report::{cpu_name, median, range, value};
use super::{Options, ROUNDS, THREADS, build, model};
use crate::shell::Result;

const SEQUENCES: [&str; 5] = ["1", "2", "4", "8", "16"];
const KEY: &str = "generate_tok_s";

/// Measures both in turns and prints a table.
pub(super) fn compare(options: &Options) -> Result {
    let (threads, rounds) = (options.threads.unwrap_or(THREADS), options.rounds.unwrap_or(ROUNDS));
    let python = peers::llama_python(Build::Native)?;
    build()?;
    let (mut rows, mut kernels) = (Vec::new(), "not said".to_owned());
    for name in &options.models {
        let file = model::bring(name)?;
        let mut reports = SEQUENCES.map(|_| [Vec::new(), Vec::new()]);
        for round in 0..rounds {
            for (sequences, [ours, theirs]) in SEQUENCES.iter().zip(&mut reports) {
                eprintln!("{name}: {sequences} sequences, round {} of {rounds}", round + 1);
                let work = ["--prompt", "0", "--generate", "64", "--repeat", "3", "--sequences", sequences];
                ours.push(siskin(&file, &work, threads)?);
                theirs.push(llama(&python, &file, &work, threads)?);
            }
        }
        let one = median(&reports[0][0], KEY)?;
        for (sequences, [ours, theirs]) in SEQUENCES.iter().zip(&reports) {
            let (a, b) = (median(ours, KEY)?, median(theirs, KEY)?);
            let count: f64 = sequences.parse().unwrap_or(1.0);
            rows.push(format!(
                "| {name} | {sequences} | {a:.1} ({}) | {:.2} | {b:.1} ({}) | {:.2} |",
                range(ours, KEY)?,
                count * one / a,
                range(theirs, KEY)?,
                a / b
            ));
        }
        if let Some(used) = reports[0][0].first().and_then(|json| value(json, "kernels")) {
            kernels = used.to_owned();
        }
    }
    println!(
        "\nCPU: {}. Threads: {threads}. Medians of {rounds} rounds with minimum and maximum.",
        cpu_name()
    );
    println!("llama.cpp: {}, built here. Kernels: {kernels}.\n", peers::LLAMA);
    println!(
        "| model | sequences | siskin tok/s | pass over one | llama.cpp tok/s | ratio |\n|---|---|---|---|---|---|"
    );
    println!("{}", rows.join("\n"));
    Ok(())
}
