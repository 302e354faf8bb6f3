//! `bench-peers`: Siskin and llama.cpp side by side on this machine, in turns.

use super::model;
use crate::Verb;
use crate::knobs;
use crate::shell::{self, Result, cargo, output, program, run, succeeds};
use crate::tools;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const VERB: Verb = Verb {
    name: "bench-peers",
    usage: "[--threads N] [--rounds N] [--deep] [MODEL]…",
    about: "measure Siskin and llama.cpp in turns and print a table",
    run: bench_peers,
};

const LLAMA: &str = "llama-cpp-python==0.3.36";

/// One call of each program, and what is taken from it.
struct Run {
    /// Arguments for both.
    work: &'static [&'static str],
    /// Arguments for Siskin and for llama.cpp alone.
    own: [&'static [&'static str]; 2],
    /// The keys both print, and how the table calls them.
    measures: &'static [(&'static str, &'static str)],
    /// Whether only `--deep` asks for it.
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

struct Options {
    threads: usize,
    rounds: usize,
    deep: bool,
    models: Vec<String>,
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options = Options { threads: 2, rounds: 3, deep: false, models: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
            value.ok_or_else(|| format!("{argument} needs a number of 1 or more"))
        };
        match argument.as_str() {
            "--threads" => options.threads = number()?,
            "--rounds" => options.rounds = number()?,
            "--deep" => options.deep = true,
            name if model::names().contains(&name) => options.models.push(name.to_owned()),
            name => return Err(format!("no model `{name}`; there are {}", model::names().join(", "))),
        }
    }
    if options.models.is_empty() {
        options.models = model::names().into_iter().map(str::to_owned).collect();
    }
    Ok(options)
}

fn bench_peers(arguments: &[String]) -> Result {
    let options = options(arguments)?;
    let python = peers_python()?;
    run(&mut cargo(&["build", "--release", "--locked", "--package", "siskin-cli"]))?;
    let (mut rows, mut kernels) = (Vec::new(), Vec::new());
    for name in &options.models {
        let file = model::bring(name)?;
        for work in RUNS.iter().filter(|work| options.deep || !work.deep) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..options.rounds {
                eprintln!("{name}: {}, round {} of {}", work.measures[0].1, round + 1, options.rounds);
                ours.push(siskin(&file, work, options.threads)?);
                theirs.push(llama(&python, &file, work, options.threads)?);
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
    println!("\nCPU: {}. Threads: {}. Medians of {} rounds.", cpu_name(), options.threads, options.rounds);
    println!("llama.cpp: {LLAMA}, built here. Kernels: {}.\n", kernels.join("; "));
    println!("| model | work | siskin tok/s | llama.cpp tok/s | ratio |\n|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(())
}

/// A Python that has llama.cpp, built with the compiler that does its AMX code justice.
fn peers_python() -> Result<PathBuf> {
    let check = ["-c", "import llama_cpp"];
    if let Some(python) = knobs::peers_python() {
        let found = succeeds(&mut program(&python, &check));
        return if found { Ok(python.into()) } else { Err(format!("{python} cannot import llama_cpp")) };
    }
    let python = tools::python("peers")?;
    if !succeeds(&mut program(&python, &check)) {
        tools::clang()?;
        let mut pip = program(&python, &["-m", "pip", "install", "--disable-pip-version-check"]);
        pip.args(["--no-binary", "llama-cpp-python", LLAMA]);
        pip.env("CC", "clang-19").env("CXX", "clang++-19");
        pip.env("CMAKE_ARGS", "-DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF");
        run(&mut pip)?;
    }
    Ok(python)
}

fn siskin(file: &Path, work: &Run, threads: usize) -> Result<String> {
    let mut command = program(shell::release("siskin"), &["bench"]);
    command.arg(file).args(work.work).args(work.own[0]).args(["--threads", &threads.to_string(), "--json"]);
    output(&mut command)
}

fn llama(python: &Path, file: &Path, work: &Run, threads: usize) -> Result<String> {
    let mut command = program(python, &["xtask/python/bench_llama.py"]);
    command.arg(file).args(work.work).args(work.own[1]).args(["--threads", &threads.to_string()]);
    output(&mut command)
}

/// The text of the value of `key` in a flat JSON object; a list or string as it is written.
fn value<'a>(json: &'a str, key: &str) -> Option<&'a str> {
    let start = json.find(&format!("\"{key}\""))? + key.len() + 2;
    let rest = json[start..].trim_start().strip_prefix(':')?.trim_start();
    let end = match rest.as_bytes().first()? {
        b'"' => rest[1..].find('"')? + 2,
        b'[' => rest.find(']')? + 1,
        _ => rest.find([',', '}', '\n']).unwrap_or(rest.len()),
    };
    Some(rest[..end].trim())
}

fn median(reports: &[String], key: &str) -> Result<f64> {
    let number = |json: &String| value(json, key)?.parse::<f64>().ok();
    let mut numbers: Vec<f64> = reports.iter().filter_map(number).collect();
    if numbers.len() != reports.len() || numbers.is_empty() {
        return Err(format!("a report has no number `{key}`: {reports:?}"));
    }
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    Ok(if numbers.len() % 2 == 1 { numbers[middle] } else { (numbers[middle - 1] + numbers[middle]) / 2.0 })
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_flat_json() {
        let json = "{\"prompt_tok_s\": 12.5,\n \"kernels\":[\"a\", \"b\"], \"cpu\": \"x, y\", \"last\":3}";
        assert_eq!(value(json, "prompt_tok_s"), Some("12.5"));
        assert_eq!(value(json, "kernels"), Some("[\"a\", \"b\"]"));
        assert_eq!(value(json, "cpu"), Some("\"x, y\""));
        assert_eq!(value(json, "last"), Some("3"));
        assert_eq!(value(json, "none"), None);
    }

    #[test]
    fn medians_need_every_number() {
        let reports: Vec<_> = ["{\"a\": 3}", "{\"a\": 1}", "{\"a\": 2}"].map(str::to_owned).to_vec();
        assert_eq!(median(&reports, "a"), Ok(2.0));
        assert_eq!(median(&reports[..2], "a"), Ok(2.0));
        assert!(median(&reports, "b").is_err());
        assert!(median(&[], "a").is_err());
    }
}
