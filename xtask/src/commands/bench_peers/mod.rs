//! `bench-peers`: Siskin and other engines compared on this machine, in turns.

mod encoders;
mod large;
mod parallel;
pub(super) mod peers;
mod products;
mod programs;
pub(super) mod report;
mod servers;
mod speed;
mod start;
mod threads;
mod types;

use super::model;
use crate::Subcommand;
use crate::shell::{Result, cargo, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "bench-peers",
    usage: "[--threads N] [--rounds N] [--deep] [--kernels] [--encoders] [--start] [--threads-over] [--large] [--parallel] [--serve] [--types] [--avx2] [MODEL]…",
    about: "alternate benchmark runs of Siskin and llama.cpp and print a table; or what the flags select: integer matmuls \
            compared with ONNX Runtime and OpenVINO, MiniLM compared with these and CTranslate2, start-up and memory, \
            more threads than cores, large models compared with the memory bandwidth, HTTP servers under load, other weight types, both sides \
            limited to AVX2",
    run: bench_peers,
};

/// A comparison that a flag selects instead of tokens per second.
struct Comparison {
    flag: &'static str,
    run: fn(&Options) -> Result,
}

const COMPARISONS: [Comparison; 9] = [
    Comparison { flag: "--kernels", run: products::compare },
    Comparison { flag: "--encoders", run: encoders::compare },
    Comparison { flag: "--start", run: start::compare },
    Comparison { flag: "--threads-over", run: threads::compare },
    Comparison { flag: "--large", run: large::compare },
    Comparison { flag: "--parallel", run: parallel::compare },
    Comparison { flag: "--serve", run: servers::compare },
    Comparison { flag: "--types", run: types::native },
    Comparison { flag: "--avx2", run: types::avx2 },
];

/// Default numbers of threads and rounds.
const THREADS: usize = 2;
const ROUNDS: usize = 3;

struct Options {
    threads: Option<usize>,
    rounds: Option<usize>,
    deep: bool,
    comparisons: Vec<&'static Comparison>,
    models: Vec<String>,
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options =
        Options { threads: None, rounds: None, deep: false, comparisons: Vec::new(), models: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
            value.ok_or_else(|| format!("{argument} needs a number of 1 or more"))
        };
        match argument.as_str() {
            "--threads" => options.threads = Some(number()?),
            "--rounds" => options.rounds = Some(number()?),
            "--deep" => options.deep = true,
            name if model::names().contains(&name) => options.models.push(name.to_owned()),
            name => match COMPARISONS.iter().find(|comparison| comparison.flag == name) {
                Some(comparison) => options.comparisons.push(comparison),
                None => return Err(format!("no model `{name}`; there are {}", model::names().join(", "))),
            },
        }
    }
    if options.models.is_empty() {
        options.models = model::names().into_iter().map(str::to_owned).collect();
    }
    Ok(options)
}

fn bench_peers(arguments: &[String]) -> Result {
    let options = options(arguments)?;
    if options.comparisons.is_empty() {
        return speed::compare(&options);
    }
    options.comparisons.iter().try_for_each(|comparison| (comparison.run)(&options))
}

/// Builds the command line.
fn build() -> Result {
    run(&mut cargo(&["build", "--release", "--locked", "--package", "siskin-cli"]))
}
