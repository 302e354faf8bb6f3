//! `test`: everything a change must pass, and a table of what ran.

use super::{android, arm, c, counts, cuda, export, ios, model, size};
use crate::Verb;
use crate::record;
use crate::shell::{self, Result, cargo, run};
use crate::tools;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const VERB: Verb =
    Verb { name: "test", usage: "[STEP]…", about: "run every check, or the steps named", run: test };

/// Real models that tests use where they are there.
const MODELS: [&str; 3] = ["smollm2", "minilm", "whisper"];
/// Mutations per seed; the plain test run does a tenth.
const FUZZ_ROUNDS: &str = "2000";

/// What stands before the reason in the table.
const SKIPPED: &str = "skipped: ";

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

struct Step {
    name: &'static str,
    run: fn() -> Result<Outcome>,
}

const STEPS: [Step; 18] = [
    Step { name: "tools", run: need_tools },
    Step { name: "format", run: || pass(cargo(&["fmt", "--all", "--check"])) },
    Step { name: "clippy", run: clippy },
    Step { name: "core-only", run: core_only },
    Step { name: "docs", run: docs },
    Step { name: "models", run: bring_models },
    Step { name: "tests", run: tests },
    Step { name: "doc-tests", run: || pass(cargo(&["test", "--workspace", "--locked", "--doc"])) },
    Step { name: "short-fuzz", run: short_fuzz },
    Step { name: "counts", run: || where_possible(counts::need_tools, |()| counts::check()) },
    Step { name: "c", run: || where_possible(c::need_tools, |()| c::check()) },
    Step { name: "cuda", run: || where_possible(cuda::need_tools, |nvcc| cuda::check(&nvcc)) },
    Step { name: "android", run: || where_possible(android::need_tools, |()| android::check().map(drop)) },
    Step { name: "ios", run: || where_possible(ios::need_tools, |swift| ios::check(&swift)) },
    Step { name: "arm", run: || where_possible(arm::need_tools, |()| arm::identity()) },
    Step { name: "size", run: || where_possible(size::need_tools, |()| size::check()) },
    Step { name: "export", run: || where_possible(export::need_tools, |python| export::check(&python, &[])) },
    Step { name: "deny", run: deny },
];

fn test(arguments: &[String]) -> Result {
    let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
    if let Some(unknown) = arguments.iter().find(|argument| !names.contains(&argument.as_str())) {
        return Err(format!("no step `{unknown}`; there are {}", names.join(", ")));
    }
    let start = Instant::now();
    let mut results = Vec::new();
    for step in
        STEPS.iter().filter(|step| arguments.is_empty() || arguments.iter().any(|name| name == step.name))
    {
        println!("\n== {}", step.name);
        let begun = Instant::now();
        let outcome = if arguments.is_empty() { recorded(step.name) } else { (step.run)() };
        let outcome = outcome.unwrap_or_else(Outcome::Failed);
        if let Outcome::Failed(why) = &outcome {
            eprintln!("{}: {why}", step.name);
        }
        results.push((step.name, outcome, begun.elapsed()));
    }
    summary(&results, start.elapsed())
}

/// Runs one step as a person would who names it, with what it prints in a file, and shows of that what failed.
fn recorded(name: &str) -> Result<Outcome> {
    let place = shell::built("test").join(format!("{name}.log"));
    let failed = |error: std::io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(shell::built("test")).map_err(failed)?;
    let file = fs::File::create(&place).map_err(failed)?;
    let this = std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    let mut command = Command::new(this);
    command.args(["test", name]).current_dir(shell::root());
    let status = command.stdout(file.try_clone().map_err(failed)?).stderr(file).status().map_err(failed)?;
    let said = String::from_utf8_lossy(&fs::read(&place).map_err(failed)?).into_owned();
    if !status.success() {
        println!("{}", record::failures(&said));
        return Ok(Outcome::Failed(format!("{status}; all that it printed is in {}", place.display())));
    }
    let skipped = record::last_after(&said, name, SKIPPED);
    Ok(skipped.map_or(Outcome::Passed, |why| Outcome::Skipped(why.to_owned())))
}

fn summary(results: &[(&str, Outcome, Duration)], total: Duration) -> Result {
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    println!("\n{:<12} {:>7}  result", "step", "seconds");
    for (name, outcome, time) in results {
        let word = match outcome {
            Outcome::Passed => {
                passed += 1;
                "passed".to_owned()
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                format!("{SKIPPED}{}", why.lines().next().unwrap_or_default())
            }
            Outcome::Failed(why) => {
                failed.push(*name);
                format!("FAILED: {}", why.lines().next().unwrap_or_default())
            }
        };
        println!("{name:<12} {:>7.1}  {word}", time.as_secs_f64());
    }
    println!("{:<12} {:>7.1}\n", "total", total.as_secs_f64());
    println!("steps: {passed} passed, {} failed, {skipped} skipped", failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn pass(mut command: std::process::Command) -> Result<Outcome> {
    run(&mut command).map(|()| Outcome::Passed)
}

fn need_tools() -> Result<Outcome> {
    tools::linker()?;
    tools::components()?;
    Ok(Outcome::Passed)
}

fn clippy() -> Result<Outcome> {
    pass(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
}

/// The kernels build without the standard library.
fn core_only() -> Result<Outcome> {
    pass(cargo(&["check", "--package", "siskin-kernels", "--no-default-features", "--locked"]))
}

fn bring_models() -> Result<Outcome> {
    for name in MODELS {
        match model::bring(name) {
            Ok(path) => println!("{name}: {}", path.display()),
            Err(why) => {
                eprintln!("{why}");
                return Ok(Outcome::Skipped(why));
            }
        }
    }
    Ok(Outcome::Passed)
}

fn tests() -> Result<Outcome> {
    let kinds = ["--lib", "--bins", "--tests", "--examples"];
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(kinds);
    pass(command)
}

fn short_fuzz() -> Result<Outcome> {
    let mut command = cargo(&["test", "--workspace", "--locked", "--test", "fuzz_short"]);
    command.env("SISKIN_FUZZ_ROUNDS", FUZZ_ROUNDS);
    pass(command)
}

/// A check that is skipped where this machine has no way to get what it needs.
fn where_possible<T>(needs: fn() -> Result<T>, check: impl FnOnce(T) -> Result) -> Result<Outcome> {
    match needs() {
        Ok(tools) => check(tools).map(|()| Outcome::Passed),
        Err(why) => Ok(Outcome::Skipped(why)),
    }
}

fn docs() -> Result<Outcome> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--lib"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    pass(command)
}

fn deny() -> Result<Outcome> {
    if !tools::has_cargo_deny() {
        let why = "cargo-deny is not installed; the house tests check licences, bans and sources";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    pass(cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"]))
}
