//! Tokens per second of Siskin and llama.cpp.

use super::programs::{llama, siskin};
use super::report::{cpu_name, median, value};
use super::{Options, ROUNDS, THREADS, build, model, peers};
use crate::shell::Result;

/// One call of each program, and the values taken from it.
struct Run {
    /// Arguments for both.
    work: &'static [&'static str],
    /// Additional arguments for Siskin and for llama.cpp.
    own: [&'static [&'static str]; 2],
    /// Keys that both print, and their names in the table.
    measures: &'static [(&'static str, &'static str)],
    /// Whether it runs only with `--deep`.
    deep: bool,
}

const RUNS: &[Run] = &[
    Run {
        work: &["--prompt", "512", "--generate", "128", "--repeat", "5"],
        own: [&[], &[]],
        measures: &[("prompt_tok_s", "prompt 512"), ("generate_tok_s", "generate 128")],
        deep: false,
    },
    Run {
        work: &["--prompt", "0", "--generate", "32", "--depth", "4096", "--repeat", "2"],
        own: [&["--kv", "f16"], &["--kv", "f16"]],
        measures: &[("generate_tok_s", "generate after 4096, f16 cache")],
        deep: true,
    },
    Run {
        work: &["--prompt", "0", "--generate", "32", "--depth", "4096", "--repeat", "2"],
        own: [&["--kv", "int8"], &["--kv", "q8_0"]],
        measures: &[("generate_tok_s", "generate after 4096, 8-bit cache")],
        deep: true,
    },
    Run {
        work: &["--prompt", "4096", "--generate", "0", "--repeat", "1"],
        own: [&["--kv", "f16"], &["--kv", "f16"]],
        measures: &[("prompt_tok_s", "prompt 4096, f16 cache")],
        deep: true,
    },
];

/// Measures both in turns and prints a table.
pub(super) fn compare(options: &Options) -> Result {
    let threads = options.threads.unwrap_or(THREADS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let python = peers::llama_python(peers::Build::Native)?;
    build()?;
    let (mut rows, mut kernels) = (Vec::new(), Vec::new());
    for name in &options.models {
        let file = model::bring(name)?;
        for work in RUNS.iter().filter(|work| options.deep || !work.deep) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                eprintln!("{name}: {}, round {} of {rounds}", work.measures[0].1, round + 1);
                let [own, their] = work.own.map(|own| [work.work, own].concat());
                ours.push(siskin(&file, &own, threads)?);
                theirs.push(llama(&python, &file, &their, threads)?);
            }
            for (key, title) in work.measures {
                let (a, b) = (median(&ours, key)?, median(&theirs, key)?);
                rows.push(format!("| {name} | {title} | {a:.1} | {b:.1} | {:.2} |", a / b));
            }
            if !work.deep {
                let used = ours.first().and_then(|json| value(json, "kernels")).unwrap_or("not said");
                kernels.push(format!("{name}: {used}"));
            }
        }
    }
    println!("\nCPU: {}. Threads: {threads}. Medians of {rounds} rounds.", cpu_name());
    println!("llama.cpp: {}, built here. Kernels: {}.\n", peers::LLAMA, kernels.join("; "));
    println!("| model | work | siskin tok/s | llama.cpp tok/s | ratio |\n|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(())
}
