//! `--types` and `--avx2`: the same model with several weight types, and our row types compared to llama.cpp's types of
//! the same size.

use super::peers::Build;
use super::programs::{llama, siskin};
use super::report::{cpu_name, median, value};
use super::{Options, ROUNDS, THREADS, build, model, peers};
use crate::shell::{self, Result, program, run};
use std::path::{Path, PathBuf};

/// A weight type of llama.cpp, and the recipe that Siskin re-encodes it with for the comparison, if any.
const PAIRS: [(&str, Option<&str>); 5] =
    [("q4_0", None), ("q4_1", None), ("q8_0", None), ("q4_0", Some("w4i")), ("q8_0", Some("w8r"))];

const WORK: [&str; 6] = ["--prompt", "512", "--generate", "128", "--repeat", "3"];
const MEASURES: [(&str, &str); 2] = [("prompt_tok_s", "prompt 512"), ("generate_tok_s", "generate 128")];

/// Compares both with all instruction sets of the processor.
pub(super) fn native(options: &Options) -> Result {
    compare(options, Build::Native, &[])
}

/// Compares both on instruction sets up to AVX2.
pub(super) fn avx2(options: &Options) -> Result {
    compare(options, Build::Avx2, &["--cpu-features", "avx2"])
}

fn compare(options: &Options, peer: Build, own: &[&str]) -> Result {
    let (threads, rounds) = (options.threads.unwrap_or(THREADS), options.rounds.unwrap_or(ROUNDS));
    let python = peers::llama_python(peer)?;
    build()?;
    let (mut rows, mut kernels) = (Vec::new(), "not said".to_owned());
    for name in &options.models {
        let source = model::bring(name)?;
        for (theirs_as, ours_as) in PAIRS {
            let theirs_file = requantized(&python, &source, theirs_as)?;
            let ours_file = ours_as.map_or(Ok(theirs_file.clone()), |recipe| converted(&source, recipe))?;
            let title = ours_as.unwrap_or(theirs_as);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..rounds {
                eprintln!("{name}: {title} and {theirs_as}, round {} of {rounds}", round + 1);
                ours.push(siskin(&ours_file, &[&WORK, own].concat(), threads)?);
                theirs.push(llama(&python, &theirs_file, &WORK, threads)?);
            }
            for (key, work) in MEASURES {
                let (a, b) = (median(&ours, key)?, median(&theirs, key)?);
                rows.push(format!(
                    "| {name} | {work} | {title} | {a:.1} | {theirs_as} | {b:.1} | {:.2} |",
                    a / b
                ));
            }
            if let Some(used) = ours.first().and_then(|json| value(json, "kernels")) {
                kernels = used.to_owned();
            }
        }
    }
    println!("\nCPU: {}. Threads: {threads}. Medians of {rounds} rounds. Kernels: {kernels}.", cpu_name());
    println!("llama.cpp: {}, built here {}.\n", peers::LLAMA, peer.words());
    println!("| model | work | siskin | tok/s | llama.cpp | tok/s | ratio |\n|---|---|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(())
}

/// Returns the model in llama.cpp's type `kind`, written once.
fn requantized(python: &Path, source: &Path, kind: &str) -> Result<PathBuf> {
    let file = source.with_extension(format!("{kind}.gguf"));
    if !file.exists() {
        let unfinished = source.with_extension("unfinished");
        run(program(python, &["xtask/python/requantize.py"]).arg(source).arg(&unfinished).arg(kind))?;
        std::fs::rename(&unfinished, &file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(file)
}

/// Returns the model with all matrices re-encoded by `recipe`, including those of fewer bits.
fn converted(source: &Path, recipe: &str) -> Result<PathBuf> {
    let file = source.with_extension(format!("{recipe}.siskin"));
    let mut convert = program(shell::release("siskin"), &["convert", "--quiet", "--quant"]);
    convert.arg(format!("{recipe},always"));
    run(convert.arg(source).arg("--output").arg(&file))?;
    Ok(file)
}
