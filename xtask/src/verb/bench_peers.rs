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
    usage: "[--threads N] [--rounds N] [MODEL]…",
    about: "measure Siskin and llama.cpp in turns and print a table",
    run: bench_peers,
};

const LLAMA: &str = "llama-cpp-python==0.3.36";
/// What is measured: the key both programs print, and how the table calls it.
const MEASURES: [(&str, &str); 2] = [("prompt_tok_s", "prompt 512"), ("generate_tok_s", "generate 128")];

struct Options {
    threads: usize,
    rounds: usize,
    models: Vec<String>,
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options = Options { threads: 2, rounds: 3, models: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
            value.ok_or_else(|| format!("{argument} needs a number of 1 or more"))
        };
        match argument.as_str() {
            "--threads" => options.threads = number()?,
            "--rounds" => options.rounds = number()?,
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
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            eprintln!("{name}: round {} of {}", round + 1, options.rounds);
            ours.push(siskin(&file, options.threads)?);
            theirs.push(llama(&python, &file, options.threads)?);
        }
        for (key, title) in MEASURES {
            let (a, b) = (median(&ours, key)?, median(&theirs, key)?);
            rows.push(format!("| {name} | {title} | {a:.1} | {b:.1} | {:.2} |", a / b));
        }
        let used = ours.first().and_then(|json| value(json, "kernels")).unwrap_or("not said");
        kernels.push(format!("{name}: {used}"));
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

fn siskin(file: &Path, threads: usize) -> Result<String> {
    let mut command = program(shell::release("siskin"), &["bench"]);
    command.arg(file).args(work(threads)).arg("--json");
    output(&mut command)
}

fn llama(python: &Path, file: &Path, threads: usize) -> Result<String> {
    let mut command = program(python, &["xtask/python/bench_llama.py"]);
    command.arg(file).args(work(threads));
    output(&mut command)
}

fn work(threads: usize) -> Vec<String> {
    let threads = threads.to_string();
    ["--prompt", "512", "--generate", "128", "--repeat", "5", "--threads", &threads]
        .map(str::to_owned)
        .to_vec()
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
