//! Runs the soak test of engines: `soak MINUTES [MODEL...]`.
//!
//! Without models it uses a small random one with adapters and one with recurrent states; with models, those instead of the
//! second. A process of its own computes what the answers must be.

use siskin::{Model, ModelOptions, Result};
use siskin_convert::{OpenOptions, open_any};
use siskin_tests::soak::{Answers, answers, soak};
use siskin_tests::{golden, random_adapters};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The number of clients.
const CLIENTS: u64 = 32;
/// How much anonymous memory may be added after a third of the time.
const MAX_GROWTH: u64 = 4 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((flag, paths)) if flag == "--answers" => models(paths).map(|models| {
            println!("{}", serde_json::json!(answers(&models)));
            true
        }),
        Some((minutes, paths)) if minutes.parse::<f64>().is_ok() => {
            models(paths).map(|models| run(&models, paths, minutes.parse().unwrap_or_default()))
        }
        _ => {
            eprintln!("usage: soak MINUTES [MODEL...]");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether memory stayed flat. Panics if anything else is wrong.
fn run(models: &[Model], paths: &[String], minutes: f64) -> bool {
    let report = soak(models, &expected(paths), CLIENTS, Duration::from_secs_f64(60.0 * minutes));
    println!("{report:#?}");
    let [early, late] = report.memory;
    let is_flat = late <= early + MAX_GROWTH;
    println!("memory: {} KiB after a third, {} KiB at the end", early / 1024, late / 1024);
    if !is_flat {
        eprintln!("memory grew");
    }
    is_flat
}

/// Returns the answers of another process.
///
/// # Panics
/// If it fails.
fn expected(paths: &[String]) -> Answers {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program).arg("--answers").args(paths).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("its output is JSON")
}

fn models(paths: &[String]) -> Result<Vec<Model>> {
    let options = ModelOptions { threads: 2, ..ModelOptions::default() };
    let llama = golden::load("llama").file;
    let adapters = random_adapters::adapters(&llama);
    let mut models = vec![Model::with_adapters(llama, &adapters, &options)?];
    if paths.is_empty() {
        models.push(Model::from_file(golden::load("qwen3-next").file, &options)?);
    }
    for path in paths {
        models.push(Model::from_file(open_any(path, &OpenOptions::default())?, &options)?);
    }
    Ok(models)
}
